#include "kernels/optimizer/optimizer_host.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/optimizer/host/optimizer_blocks.hpp"

namespace ztrain::kernels {
namespace {

/// Prepared: addresses are set once.
template <class Rule, class Data>
class BlocksOf final : public HostOptimizerStep {
 public:
  BlocksOf(const Data& data, bool rewrites, std::vector<OptimizerPiece> pieces)
      : block_(data, rewrites), pieces_(std::move(pieces)), first_(first_blocks(pieces_)) {}

  std::int64_t blocks() const override { return first_.back(); }

  void run(std::int64_t begin, std::int64_t end, const StepScalars& scalars) const override {
    const auto behind = std::upper_bound(first_.begin(), first_.end(), begin);
    for (auto piece = at(behind - first_.begin() - 1); begin < end; ++piece)
      for (const std::int64_t last = std::min(end, first_[piece + 1]); begin < last; ++begin)
        step(pieces_[piece], (begin - first_[piece]) * optim::block, scalars);
  }

 private:
  /// The length of a full block is a constant to the compiler.
  void step(const OptimizerPiece& piece, std::int64_t from, const StepScalars& scalars) const {
    if (from + optim::block <= piece.count)
      block_.step(piece, scalars, from, optim::block);
    else
      block_.step(piece, scalars, from, piece.count - from);
  }

  StepBlock<Rule, Data> block_;
  std::vector<OptimizerPiece> pieces_;
  std::vector<std::int64_t> first_;  ///< by piece, and of all
};

}  // namespace

void StepRequest::check(const std::vector<OptimizerPiece>& pieces) const {
  const optim::Info& info = optim::find(rule);
  const std::size_t needs = info.states(settings).size();
  REQUIRE(arrays.states.size() == needs, "{}: {} states, where the rule keeps {}", info.name,
          arrays.states.size(), needs);
  REQUIRE((arrays.master != nullptr) == (types.master != types.parameter),
          "{}: a master of type {} beside {} parameters {} an array of its own", info.name,
          name_of(types.master), name_of(types.parameter), arrays.master ? "has" : "needs");
  REQUIRE(!arrays.parameter_is_new || arrays.master != nullptr,
          "{}: what is stepped is the parameter itself, whose old bits are not there", info.name);
  for (const OptimizerPiece& p : pieces) {
    REQUIRE(p.begin % optim::block == 0, "{}: a piece begins at element {}, not on a multiple of {}",
            info.name, p.begin, optim::block);
    REQUIRE(p.run > 0, "{}: a piece has runs of {} elements", info.name, p.run);
  }
}

void StepRequest::fail_for_types() const {
  fail("no {} kernel steps {} parameters with {} master weights, {} gradients and {} moments", rule,
       name_of(types.parameter), types.master == types.parameter ? "no" : name_of(types.master),
       name_of(types.gradient), name_of(types.moments));
}

std::unique_ptr<HostOptimizerStep> make_host_optimizer_step(
    std::string_view rule, const optim::Settings& settings, const OptimizerTypes& types,
    const OptimizerArrays& arrays, std::vector<OptimizerPiece> pieces, Rounding rounding) {
  const StepRequest request{rule, settings, types, arrays};
  request.check(pieces);
  std::unique_ptr<HostOptimizerStep> made;
  ForCombination(request, [&]<class Rule, class T, class States>() {
    using Data = StepData<Rule, T, States>;
    made = std::make_unique<BlocksOf<Rule, Data>>(Data(arrays, settings, rounding), arrays.parameter_is_new,
                                                  std::move(pieces));
  });
  if (!made) request.fail_for_types();
  return made;
}

}  // namespace ztrain::kernels
