#pragma once
// One block of at most 256 elements of one piece, stepped by a rule. Included by kernel sources only.

#include <bit>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/launch/wide.hpp"
#include "kernels/optimizer/stochastic_rounding.hpp"

namespace ztrain::kernels {

/// What a block's loops touch, from its first element: `stepped` is the master, or the parameter itself where
/// there is none; `copy` is then null.
template <class P, class W, class G>
struct BlockArrays {
  P* copy;
  W* stepped;
  const G* gradient;
};

/// Whether a CPU converts the 16-bit floats among these by groups: a loop that converts element by element
/// takes longer for that than for the step.
template <class A, class... Stored>
inline constexpr bool steps_wide = !on_gpu && std::is_same_v<A, float> && ((sizeof(Stored) == 2) || ...);

template <class T>
inline void to_wide(const T* __restrict from, float* __restrict to) {
  if constexpr (sizeof(T) == 2)
    widen_group(from, to);
  else
    for (std::int64_t i = 0; i < wide_group; ++i) to[i] = from[i];
}

template <class T>
inline void from_wide(const float* __restrict from, T* __restrict to) {
  if constexpr (sizeof(T) == 2)
    narrow_group(from, to);
  else
    for (std::int64_t i = 0; i < wide_group; ++i) to[i] = from[i];
}

/// Asks for the lines of a group that comes some time later, which may be behind the array's end.
template <class T>
inline void fetch_ahead(const T* group) {
  constexpr int line = 64, ahead = 2048;
  const char* const from = reinterpret_cast<const char*>(group) + ahead;
  for (int at = 0; at < static_cast<int>(wide_group * sizeof(T)); at += line)
    __builtin_prefetch(from + at, 1);
}

/// wide_group elements, of which the first is `first` of the block.
template <class Rule, class Round, class P, class W, class G, class... M, std::size_t... I>
inline void step_group(const typename Rule::template Coefficients<float>& coefficients, const Round round,
                       std::int64_t first, std::index_sequence<I...>, P* __restrict copy,
                       W* __restrict stepped, const G* __restrict gradient, M* __restrict... states) {
  const auto c = coefficients;
  float value[wide_group], slope[wide_group];
  [[maybe_unused]] float held[sizeof...(M) + 1][wide_group];
  fetch_ahead(stepped);
  fetch_ahead(gradient);
  (fetch_ahead(states), ...);
  if constexpr (!std::is_same_v<P, W>) fetch_ahead(copy);
  to_wide(stepped, value);
  to_wide(gradient, slope);
  (to_wide(states, held[I]), ...);
  for (std::int64_t i = 0; i < wide_group; ++i)
    value[i] = Rule::template step<float>(value[i], slope[i], c, held[I][i]...);
  (from_wide(held[I], states), ...);
  if constexpr (std::is_same_v<Round, RoundNearest>)
    from_wide(value, stepped);
  else
    for (std::int64_t i = 0; i < wide_group; ++i) stepped[i] = round.template store<W>(value[i], first + i);
  if constexpr (!std::is_same_v<P, W>) from_wide(value, copy);
}

/// States of one type M, element by element.
template <class Rule, class Round, class P, class W, class G, class... M>
KOKKOS_INLINE_FUNCTION void step_elements(const typename Rule::template Coefficients<acc_t<W>>& coefficients,
                                          const Round round, std::int64_t n, P* __restrict copy,
                                          W* __restrict stepped, const G* __restrict gradient,
                                          M* __restrict... states) {
  using A = acc_t<W>;
  const auto c = coefficients;
  std::int64_t begin = 0;
  if constexpr (steps_wide<A, P, W, G, M...>)
    for (; begin + wide_group <= n; begin += wide_group)
      step_group<Rule, Round, P, W, G, M...>(c, round, begin, std::index_sequence_for<M...>{},
                                             std::is_same_v<P, W> ? copy : copy + begin, stepped + begin,
                                             gradient + begin, (states + begin)...);
  for (std::int64_t i = begin; i < n; ++i) {
    const auto element = [&](auto... state) {
      const A value = Rule::step(load(stepped[i]), static_cast<A>(gradient[i]), c, state...);
      ((states[i] = static_cast<M>(state)), ...);
      stepped[i] = round.template store<W>(value, i);
      if constexpr (!std::is_same_v<P, W>) copy[i] = static_cast<P>(value);
    };
    element(static_cast<A>(states[i])...);
  }
}

/// A block's codes and its scale.
struct CodedBlock {
  std::uint8_t* codes;
  float* absmax;
};

template <class Codec, class A>
KOKKOS_INLINE_FUNCTION void decode(const std::uint8_t* __restrict codes, float absmax, std::int64_t n,
                                   A* __restrict numbers) {
  for (std::int64_t i = 0; i < n; ++i) numbers[i] = static_cast<A>(Codec::decode(codes[i]) * absmax);
}

/// The largest magnitude becomes the scale; NaN counts as larger than all, so it spoils its block visibly.
template <class Codec, class A>
KOKKOS_INLINE_FUNCTION void encode(const A* __restrict numbers, std::int64_t n,
                                   std::uint8_t* __restrict codes, float* absmax) {
  float ratio[quantum];
  std::int32_t cell[quantum];
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(numbers[i])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  const float scale = std::bit_cast<float>(largest);
  *absmax = scale;
  if (largest == 0) {
    for (std::int64_t i = 0; i < n; ++i) codes[i] = 0;
    return;
  }
  // The look-ups have a loop of their own, so that the arithmetic before and after them is vectorised.
  for (std::int64_t i = 0; i < n; ++i) {
    ratio[i] = static_cast<float>(numbers[i]) / scale;
    cell[i] = Codec::map.cell(Codec::magnitude(ratio[i]));
  }
  for (std::int64_t i = 0; i < n; ++i) codes[i] = Codec::map.nearest_in(cell[i], Codec::magnitude(ratio[i]));
  for (std::int64_t i = 0; i < n; ++i) codes[i] = Codec::with_sign(codes[i], ratio[i]);
}

/// States as codes: decoded into the block's own arrays, stepped by the rule that Rule names, and coded
/// again.
template <class Rule, class Round, class P, class W, class G, std::size_t... I>
KOKKOS_INLINE_FUNCTION void step_coded(
    const typename Rule::Uncoded::template Coefficients<acc_t<W>>& coefficients, const Round round,
    std::int64_t n, const BlockArrays<P, W, G>& arrays, const CodedBlock* coded, std::index_sequence<I...>) {
  using A = acc_t<W>;
  A numbers[sizeof...(I)][quantum];
  (decode<std::tuple_element_t<I, typename Rule::Codecs>>(coded[I].codes, *coded[I].absmax, n, numbers[I]),
   ...);
  step_elements<typename Rule::Uncoded, Round, P, W, G>(coefficients, round, n, arrays.copy, arrays.stepped,
                                                        arrays.gradient, numbers[I]...);
  (encode<std::tuple_element_t<I, typename Rule::Codecs>>(numbers[I], n, coded[I].codes, coded[I].absmax),
   ...);
}

}  // namespace ztrain::kernels
