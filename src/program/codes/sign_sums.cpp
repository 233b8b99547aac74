#include "program/codes/sign_sums.hpp"

#include <algorithm>

#include "base/shape.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernels/signs/record.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// The sum of one unit's gradient.
class SignSum {
 public:
  SignSum(Program& program, const Cut& cut, const JobTensors& tensors, int unit, double beta1)
      : program_(program),
        flat_(cut.layout.unit(unit)),
        scalars_(tensors.scalars),
        state_(tensors.units[at(unit)]),
        axes_(sign_axes(cut, unit)),
        ranks_(program.mesh.size(axes_)),
        beta1_(beta1) {
    const std::int64_t begin = flat_.shard_begin(cut.at);
    for (const Piece& p : cut.layout.pieces(unit, cut.at)) pieces_.push_back({p.flat_begin - begin, p.count});
    quanta_ = ceil_div(flat_.shard_elements / code_quantum, ranks_);
    begin_ = cut.at.index_in(axes_) * quanta_ * code_quantum;
  }

  TensorId append(TensorId gradient) {
    const DType type = program_.tensor(gradient).dtype;
    const TensorId terms = add_codes("signs.terms.", ranks_), given = add_codes("signs.of_ranks.", ranks_),
                   part = add_codes("signs.part.", 1), all = add_codes("signs.sum.", ranks_),
                   error = state_.optimizer[at(state_.error())].slice,
                   momentum = state_.optimizer.front().slice,
                   sum = program_.add({.name = "gradient.of_signs." + name(),
                                       .dtype = type == DType::f64 ? type : DType::f32,
                                       .shape = {flat_.shard_elements},
                                       .category = Category::gradient,
                                       .unit = flat_.unit});
    add_op(program_, EncodeSigns{beta1_, ranks_, pieces_}, name(), action_,
           {gradient, momentum, scalars_, error}, {terms, error});
    emit_all_to_all(program_, name(), terms, given, axes_, action_);
    program_.ops.back().stream = Stream::reduce;
    add_op(program_, SumSigns{axes_.bits(), begin_, pieces_of_part()}, name(), action_,
           {given, scalars_, error}, {part, error});
    emit_all_gather(program_, name(), part, all, axes_, action_);
    program_.ops.back().stream = Stream::reduce;
    add_op(program_, DecodeSigns{beta1_, pieces_}, name(), action_, {all, momentum, scalars_}, {sum});
    return sum;
  }

 private:
  const std::string& name() const { return program_.units[at(flat_.unit)]; }
  /// Codes for so many ranks' parts.
  TensorId add_codes(const char* what, std::int64_t parts) {
    return program_.add({.name = what + name(),
                         .dtype = DType::u8,
                         .shape = {parts * quanta_, sign_quantum_bytes},
                         .category = Category::gradient,
                         .unit = flat_.unit});
  }
  std::vector<Elements> pieces_of_part() const {
    std::vector<Elements> part;
    const std::int64_t end = begin_ + quanta_ * code_quantum;
    for (const Elements& p : pieces_)
      if (const std::int64_t from = std::max(p.begin, begin_), to = std::min(p.begin + p.count, end);
          from < to)
        part.push_back({from - begin_, to - from});
    return part;
  }

  Program& program_;
  const FlatUnit& flat_;
  const TensorId scalars_;
  const UnitState& state_;
  const AxisSet axes_;
  const std::int64_t ranks_;
  const double beta1_;
  const Action action_{ActionKind::reduce, flat_.unit, -1};
  std::vector<Elements> pieces_;  ///< of the shard that are parameters
  std::int64_t quanta_ = 0;       ///< of a rank's part of the shard
  std::int64_t begin_ = 0;        ///< element at which this rank's part begins
};

/// Appends by what all ranks know whether any of their terms is not finite, and the step's tokens.
void append_look_at_terms(Program& program, const Cut& cut, const JobTensors& tensors,
                          const std::vector<ReducedGradient>& gradients, const StepTerms& terms) {
  std::vector<TensorId> norms;
  for (std::size_t u = 0; u < gradients.size(); ++u) {
    if (gradients[u].slice == no_tensor) continue;
    const FlatUnit& unit = cut.layout.unit(static_cast<int>(u));
    const TensorId norm = program.add({.name = "terms.finite." + program.units[u],
                                       .dtype = DType::u8,
                                       .shape = {sizeof(ExactSum)},
                                       .category = Category::scalar});
    SumSquares look{{{0, unit.shard_elements}}};
    look.of_terms = true;
    complete(program, add_op(program, look, program.units[u], {ActionKind::norm, static_cast<int>(u), -1},
                             {gradients[u].slice}, {norm}));
    norms.push_back(norm);
  }
  append_partials(program, cut, tensors, terms.losses, norms);
  append_finish(program, tensors, terms.overflows);
}

}  // namespace

bool sums_signs(const JobTensors& tensors) {
  return std::ranges::any_of(tensors.units, [](const UnitState& unit) { return unit.error() >= 0; });
}

void append_sign_sums(Program& program, const Cut& cut, const JobTensors& tensors,
                      const config::Optimizer& options, std::vector<ReducedGradient>& gradients,
                      const StepTerms& terms) {
  append_look_at_terms(program, cut, tensors, gradients, terms);
  for (std::size_t u = 0; u < gradients.size(); ++u) {
    ReducedGradient& gradient = gradients[u];
    const int unit = static_cast<int>(u);
    if (gradient.slice == no_tensor || tensors.units[u].error() < 0) continue;
    gradient.slice = SignSum(program, cut, tensors, unit, options.beta1).append(gradient.slice);
    gradient.whole = whole_gradient(program, cut, unit, gradient.slice, {ActionKind::reduce, unit, -1});
  }
}

}  // namespace ztrain::program
