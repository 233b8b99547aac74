#pragma once
// Parts of a step of a rule on flat arrays: the combinations of types that there are kernels for, and
// arrays of these types. The host's loops (host) and the threads of GPUs (optimizer_quanta.hpp) work
// on the same. Included by kernel sources only.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/function.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"
#include "optim/rules.hpp"

namespace ztrain::kernels {

/// A legal combination: parameter, what is stepped (the same type: no separate master), gradient.
template <class Parameter, class Stepped, class Gradient>
struct OptimizerTypesOf {
  using P = Parameter;
  using W = Stepped;
  using G = Gradient;
  static constexpr bool master = !std::is_same_v<P, W>;
};

/// All legal combinations.
using Combinations = std::tuple<OptimizerTypesOf<float, float, float>,
                                OptimizerTypesOf<double, double, double>, OptimizerTypesOf<bf16, bf16, bf16>,
                                OptimizerTypesOf<bf16, bf16, float>, OptimizerTypesOf<bf16, float, bf16>,
                                OptimizerTypesOf<bf16, float, float>, OptimizerTypesOf<f16, float, f16>,
                                OptimizerTypesOf<f16, float, float>, OptimizerTypesOf<float, float, bf16>>;

/// A rule whose values are averages of parameters.
template <class Rule>
concept Averages = requires {
  Rule::averages;
};

/// Whether a rule steps with a combination. Averages have no master and are as wide as sums. Only for them is
/// the combination of fp32 values with bf16 gradients, whose place the parameters take.
template <class Rule, class T>
constexpr bool steps_types = Averages<Rule> ? !T::master && sizeof(typename T::W) >= sizeof(float)
                                            : !std::is_same_v<T, OptimizerTypesOf<float, float, bf16>>;

/// Arrays that a block's loops touch, from its first element. `stepped` is the master, or the parameter
/// itself where there is none; `copy` is then null.
template <class P, class W, class G>
struct BlockArrays {
  P* copy;
  W* stepped;
  const G* gradient;
};

/// A block's codes and its scale.
struct CodedBlock {
  std::uint8_t* codes;
  float* absmax;
};

/// A rule whose states are stored as codes.
template <class Rule>
concept Coded = requires {
  typename Rule::Codecs;
};

template <class Rule>
struct UncodedOf {
  using type = Rule;
};
template <Coded Rule>
struct UncodedOf<Rule> {
  using type = typename Rule::Uncoded;
};

/// Arrays of type M, an item per element.
template <class M, std::size_t count>
struct ElementStates {
  using Codecs = void;
  static constexpr std::size_t no_states = count;
  M* data[no_states > 0 ? no_states : 1];

  explicit ElementStates([[maybe_unused]] const std::vector<std::byte*>& states) {
    if constexpr (no_states > 0)  // nvcc warns of a comparison with none
      for (std::size_t s = 0; s < no_states; ++s) data[s] = reinterpret_cast<M*>(states[s]);
  }
};

/// Codes and scales, by turns.
template <class CodecsOfStates>
struct CodedStates {
  using Codecs = CodecsOfStates;
  static constexpr std::size_t no_states = std::tuple_size_v<Codecs>;
  CodedBlock data[no_states];

  explicit CodedStates(const std::vector<std::byte*>& states) {
    for (std::size_t s = 0; s < no_states; ++s)
      data[s] = {reinterpret_cast<std::uint8_t*>(states[2 * s]), reinterpret_cast<float*>(states[2 * s + 1])};
  }
};

/// Arrays that a step reads and writes, from their first elements.
template <class Rule, class Types, class StatesOf>
struct StepData {
  using T = Types;
  using States = StatesOf;
  using Arrays = BlockArrays<typename T::P, typename T::W, typename T::G>;
  using Coefficients = typename UncodedOf<Rule>::type::template Coefficients<acc_t<typename T::W>>;
  /// Whether what is stepped may be rounded by random bits.
  static constexpr bool may_draw = std::is_same_v<typename T::W, bf16>;

  Arrays arrays;
  States states;
  optim::Settings settings;
  Rounding rounding;

  StepData(const OptimizerArrays& given, const optim::Settings& options, Rounding how)
      : arrays{T::master ? reinterpret_cast<typename T::P*>(given.parameter) : nullptr,
               reinterpret_cast<typename T::W*>(T::master ? given.master : given.parameter),
               reinterpret_cast<const typename T::G*>(given.gradient)},
        states(given.states),
        settings(options),
        rounding(how) {}

  ZTRAIN_FUNCTION Arrays arrays_at(std::int64_t at) const {
    Arrays moved = arrays;
    moved.stepped += at;
    moved.gradient += at;
    if constexpr (T::master) moved.copy += at;
    return moved;
  }
  ZTRAIN_FUNCTION Coefficients coefficients(const StepScalars& scalars, const OptimizerPiece& piece) const {
    return Coefficients(scalars, settings, optim::Group{piece.lr_scale, piece.weight_decay});
  }
  ZTRAIN_FUNCTION RandomStream stream(const StepScalars& scalars, const OptimizerPiece& piece) const {
    return RandomStream::of_step(rounding.seed, piece.stream, scalars.optimizer_step);
  }
};

/// The number of the step's blocks, of 256 elements at most, in the pieces before each, and in all.
inline std::vector<std::int64_t> first_blocks(const std::vector<OptimizerPiece>& pieces) {
  std::vector<std::int64_t> first{0};
  for (const OptimizerPiece& piece : pieces)
    first.push_back(first.back() + (piece.count + optim::block - 1) / optim::block);
  return first;
}

/// Request for a step. Throws Error if the step cannot be made, whatever its types: see
/// make_optimizer_step.
struct StepRequest {
  std::string_view rule;
  const optim::Settings& settings;
  const OptimizerTypes& types;
  const OptimizerArrays& arrays;

  void check(const std::vector<OptimizerPiece>& pieces) const;
  /// Throws Error: there is no such combination.
  [[noreturn]] void fail_for_types() const;
};

/// Whether Rule steps with no_states states.
template <class Rule, class A, std::size_t no_states>
constexpr bool steps_with = []<std::size_t... I>(std::index_sequence<I...>) {
  return requires(A value, typename Rule::template Coefficients<A> c, std::array<A, no_states> states) {
    { Rule::template step<A>(value, value, c, states[I]...) } -> std::same_as<A>;
  };
}
(std::make_index_sequence<no_states>{});

/// Finds the combination that a request names and calls make.operator()<Rule, Types, States>(), or nothing.
template <class Make>
class ForCombination {
 public:
  ForCombination(const StepRequest& request, const Make& make) : request_(request), make_(make) {
    all(static_cast<Combinations*>(nullptr));
  }

 private:
  template <class... T>
  void all(std::tuple<T...>*) {
    (of_types<T>(static_cast<optim::StepRules*>(nullptr)), ...);
  }

  template <class T, class... Rule>
  void of_types(std::tuple<Rule...>*) {
    const OptimizerTypes& t = request_.types;
    if (t.parameter != dtype_of<typename T::P>() || t.master != dtype_of<typename T::W>() ||
        t.gradient != dtype_of<typename T::G>())
      return;
    ((request_.rule == Rule::name ? of_rule<Rule, T>() : void()), ...);
  }

  /// Moments are fp32 or bf16, of fp64 parameters fp64.
  template <class Rule, class T>
  void of_rule() {
    using A = acc_t<typename T::W>;
    if constexpr (!steps_types<Rule, T>) {
      return;
    } else if constexpr (Coded<Rule>) {
      make_.template operator()<Rule, T, CodedStates<typename Rule::Codecs>>();
    } else {
      with_states<Rule, T, A, 0>();
      if (request_.types.moments == dtype_of<A>()) {
        with_states<Rule, T, A, 1>();
        with_states<Rule, T, A, 2>();
      }
      if constexpr (std::is_same_v<A, float>)
        if (request_.types.moments == DType::bf16) {
          with_states<Rule, T, bf16, 1>();
          with_states<Rule, T, bf16, 2>();
        }
    }
  }

  template <class Rule, class T, class M, std::size_t no_states>
  void with_states() {
    if constexpr (steps_with<Rule, acc_t<typename T::W>, no_states>)
      if (request_.arrays.states.size() == no_states)
        make_.template operator()<Rule, T, ElementStates<M, no_states>>();
  }

  const StepRequest& request_;
  const Make& make_;
};

}  // namespace ztrain::kernels
