#pragma once
// A rule, its types and its states, joined into a step over pieces. Included by kernel sources only.

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/optimizer_blocks.hpp"
#include "kernels/optimizer_step.hpp"

namespace ztrain::kernels {

/// A legal combination: parameter, what is stepped (the same type: no separate master), gradient.
template <class Parameter, class Stepped, class Gradient>
struct OptimizerTypesOf {
  using P = Parameter;
  using W = Stepped;
  using G = Gradient;
  static constexpr bool master = !std::is_same_v<P, W>;
};

/// A rule whose states are stored as codes.
template <class Rule>
concept Coded = requires {
  typename Rule::Codecs;
};

/// no_states arrays of M, an item per element.
template <class M, std::size_t no_states>
struct ElementStates {
  std::array<M*, no_states> data;

  explicit ElementStates(const std::vector<std::byte*>& states) {
    for (std::size_t s = 0; s < no_states; ++s) data[s] = reinterpret_cast<M*>(states[s]);
  }

  template <class Rule, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step(const C& c, Round round, std::int64_t at, std::int64_t n,
                                   const BlockArrays<P, W, G>& arrays) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step_elements<Rule, Round, P, W, G>(c, round, n, arrays.copy, arrays.stepped, arrays.gradient,
                                          (data[I] + at)...);
    }
    (std::make_index_sequence<no_states>{});
  }
};

/// Codes and scales, by turns.
template <std::size_t no_states>
struct CodedStates {
  std::array<CodedBlock, no_states> data;

  explicit CodedStates(const std::vector<std::byte*>& states) {
    for (std::size_t s = 0; s < no_states; ++s)
      data[s] = {reinterpret_cast<std::uint8_t*>(states[2 * s]), reinterpret_cast<float*>(states[2 * s + 1])};
  }

  template <class Rule, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step(const C& c, Round round, std::int64_t at, std::int64_t n,
                                   const BlockArrays<P, W, G>& arrays) const {
    CodedBlock blocks[no_states];
    for (std::size_t s = 0; s < no_states; ++s)
      blocks[s] = {data[s].codes + at, data[s].absmax + at / quantum};
    step_coded<Rule, Round, P, W, G>(c, round, n, arrays, blocks, std::make_index_sequence<no_states>{});
  }
};

template <class Rule>
struct UncodedOf {
  using type = Rule;
};
template <Coded Rule>
struct UncodedOf<Rule> {
  using type = typename Rule::Uncoded;
};

/// All blocks of one piece.
template <class Rule, class T, class States>
void launch(Exec& exec, const BlockArrays<typename T::P, typename T::W, typename T::G>& arrays,
            const States& states, const OptimizerPiece& piece, const optimizers::Settings& settings,
            const Rounding& rounding, const StepScalars* scalars) {
  using Coefficients = typename UncodedOf<Rule>::type::template Coefficients<acc_t<typename T::W>>;
  for_blocks(
      exec, piece.count, KOKKOS_LAMBDA(const std::int64_t first, const std::int64_t n) {
        if (scalars->found_inf != 0) return;  // the old state stays
        const Coefficients c(*scalars, settings, optimizers::Group{piece.lr_scale, piece.weight_decay});
        const std::int64_t at = piece.begin + first;
        auto block = arrays;
        block.stepped += at;
        block.gradient += at;
        if constexpr (T::master) block.copy += at;
        if constexpr (std::is_same_v<typename T::W, bf16>) {
          if (rounding.stochastic) {
            std::uint32_t bits[quantum];
            const auto stream = RandomStream::of_step(rounding.seed, piece.stream, scalars->optimizer_step);
            draw_for(stream, piece, first, n, bits);
            states.template step<Rule>(c, RoundStochastic{bits}, at, n, block);
            return;
          }
        }
        states.template step<Rule>(c, RoundNearest{}, at, n, block);
      });
}

/// Prepared: addresses are set once.
template <class Rule, class T, class States>
class StepOf final : public OptimizerStep {
 public:
  StepOf(const optimizers::Settings& settings, const OptimizerArrays& arrays,
         std::vector<OptimizerPiece> pieces, Rounding rounding)
      : settings_(settings), states_(arrays.states), pieces_(std::move(pieces)), rounding_(rounding) {
    using P = typename T::P;
    using W = typename T::W;
    arrays_ = {T::master ? reinterpret_cast<P*>(arrays.parameter) : nullptr,
               reinterpret_cast<W*>(T::master ? arrays.master : arrays.parameter),
               reinterpret_cast<const typename T::G*>(arrays.gradient)};
  }

  void run(Exec& exec, const StepScalars* scalars) override {
    for (const OptimizerPiece& piece : pieces_)
      launch<Rule, T>(exec, arrays_, states_, piece, settings_, rounding_, scalars);
  }

 private:
  optimizers::Settings settings_;
  BlockArrays<typename T::P, typename T::W, typename T::G> arrays_;
  States states_;
  std::vector<OptimizerPiece> pieces_;
  Rounding rounding_;
};

}  // namespace ztrain::kernels
