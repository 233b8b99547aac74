#include "kernels/optimizer/optimizer_step.hpp"

#include <algorithm>
#include <concepts>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "kernels/optimizer/optimizer_launch.hpp"
#include "optim/rules.hpp"

namespace ztrain::kernels {
namespace {

static_assert(optim::block == quantum);

/// One entry per combination that there are kernels for: parameter, stepped, gradient.
using Combinations =
    std::tuple<OptimizerTypesOf<float, float, float>, OptimizerTypesOf<double, double, double>,
               OptimizerTypesOf<bf16, bf16, bf16>, OptimizerTypesOf<bf16, bf16, float>,
               OptimizerTypesOf<bf16, float, bf16>, OptimizerTypesOf<bf16, float, float>,
               OptimizerTypesOf<f16, float, f16>, OptimizerTypesOf<f16, float, float>>;

/// What make_optimizer_step is asked for.
struct Request {
  std::string_view rule;
  const optim::Settings& settings;
  const OptimizerTypes& types;
  const OptimizerArrays& arrays;
  std::vector<OptimizerPiece> pieces;
  Rounding rounding;
  std::unique_ptr<OptimizerStep> made;

  template <class Rule, class T, class States>
  void make() {
    made = std::make_unique<StepOf<Rule, T, States>>(settings, arrays, std::move(pieces), rounding);
  }
};

/// Whether Rule steps with no_states states.
template <class Rule, class A, std::size_t no_states>
constexpr bool steps_with = []<std::size_t... I>(std::index_sequence<I...>) {
  return requires(A value, typename Rule::template Coefficients<A> c, std::array<A, no_states> states) {
    { Rule::template step<A>(value, value, c, states[I]...) } -> std::same_as<A>;
  };
}
(std::make_index_sequence<no_states>{});

template <class Rule, class T, class M, std::size_t no_states>
void make_with(Request& request) {
  if constexpr (steps_with<Rule, acc_t<typename T::W>, no_states>)
    if (request.arrays.states.size() == no_states) request.make<Rule, T, ElementStates<M, no_states>>();
}

/// Moments are fp32 or bf16, of fp64 parameters fp64.
template <class Rule, class T>
void make_rule(Request& request) {
  using A = acc_t<typename T::W>;
  if constexpr (Coded<Rule>) {
    request.make<Rule, T, CodedStates<typename Rule::Codecs>>();
  } else {
    make_with<Rule, T, A, 0>(request);
    if (request.types.moments == dtype_of<A>()) {
      make_with<Rule, T, A, 1>(request);
      make_with<Rule, T, A, 2>(request);
    }
    if constexpr (std::is_same_v<A, float>)
      if (request.types.moments == DType::bf16) {
        make_with<Rule, T, bf16, 1>(request);
        make_with<Rule, T, bf16, 2>(request);
      }
  }
}

template <class T, class... Rule>
void make_types(Request& request, std::tuple<Rule...>*) {
  const OptimizerTypes& t = request.types;
  if (t.parameter != dtype_of<typename T::P>() || t.master != dtype_of<typename T::W>() ||
      t.gradient != dtype_of<typename T::G>())
    return;
  ((request.rule == Rule::name ? make_rule<Rule, T>(request) : void()), ...);
}

template <class... T>
void make_any(Request& request, std::tuple<T...>*) {
  (make_types<T>(request, static_cast<optim::Rules*>(nullptr)), ...);
}

void check(const optim::Info& info, const Request& request) {
  const OptimizerTypes& types = request.types;
  const std::size_t needs = info.states(request.settings).size();
  REQUIRE(request.arrays.states.size() == needs, "{}: {} states, where the rule keeps {}", info.name,
          request.arrays.states.size(), needs);
  REQUIRE((request.arrays.master != nullptr) == (types.master != types.parameter),
          "{}: a master of type {} beside {} parameters {} an array of its own", info.name,
          name_of(types.master), name_of(types.parameter), request.arrays.master ? "has" : "needs");
  for (const OptimizerPiece& p : request.pieces) {
    REQUIRE(p.begin % quantum == 0, "{}: a piece begins at element {}, not on a multiple of {}", info.name,
            p.begin, quantum);
    REQUIRE(p.run > 0, "{}: a piece has runs of {} elements", info.name, p.run);
  }
}

}  // namespace

std::unique_ptr<OptimizerStep> make_optimizer_step(std::string_view rule, const optim::Settings& settings,
                                                   const OptimizerTypes& types, const OptimizerArrays& arrays,
                                                   std::vector<OptimizerPiece> pieces, Rounding rounding) {
  const optim::Info& info = optim::find(rule);
  Request request{rule, settings, types, arrays, std::move(pieces), rounding, nullptr};
  check(info, request);
  make_any(request, static_cast<Combinations*>(nullptr));
  REQUIRE(request.made,
          "no {} kernel steps {} parameters with {} master weights, {} gradients and {} moments", rule,
          name_of(types.parameter), types.master == types.parameter ? "no" : name_of(types.master),
          name_of(types.gradient), name_of(types.moments));
  return std::move(request.made);
}

}  // namespace ztrain::kernels
