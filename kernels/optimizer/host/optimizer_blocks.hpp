#pragma once
// One block of at most 256 elements of one piece, stepped by a rule: the host's loops, which the compiler
// vectorises. Included by kernel sources only.

#include <bit>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/launch/wide.hpp"
#include "kernels/optimizer/optimizer_data.hpp"

namespace ztrain::kernels {

/// Whether the 16-bit floats among these are converted by groups: a loop that converts element by element
/// takes longer for that than for the step.
template <class A, class... Stored>
inline constexpr bool steps_wide = std::is_same_v<A, float> && ((sizeof(Stored) == 2) || ...);

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
inline void step_elements(const typename Rule::template Coefficients<acc_t<W>>& coefficients,
                          const Round round, std::int64_t n, P* __restrict copy, W* __restrict stepped,
                          const G* __restrict gradient, M* __restrict... states) {
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
      const A value = Rule::step(static_cast<A>(stepped[i]), static_cast<A>(gradient[i]), c, state...);
      ((states[i] = static_cast<M>(state)), ...);
      stepped[i] = round.template store<W>(value, i);
      if constexpr (!std::is_same_v<P, W>) copy[i] = static_cast<P>(value);
    };
    element(static_cast<A>(states[i])...);
  }
}

template <class Codec, class A>
inline void decode(const std::uint8_t* __restrict codes, float absmax, std::int64_t n,
                   A* __restrict numbers) {
  for (std::int64_t i = 0; i < n; ++i) numbers[i] = static_cast<A>(Codec::decode(codes[i]) * absmax);
}

/// The largest magnitude becomes the scale; NaN counts as larger than all, so it spoils its block visibly.
template <class Codec, class A>
inline void encode(const A* __restrict numbers, std::int64_t n, std::uint8_t* __restrict codes,
                   float* absmax) {
  float ratio[optim::block];
  std::int32_t cell[optim::block];
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
inline void step_coded(const typename Rule::Uncoded::template Coefficients<acc_t<W>>& coefficients,
                       const Round round, std::int64_t n, const BlockArrays<P, W, G>& arrays,
                       const CodedBlock* coded, std::index_sequence<I...>) {
  using A = acc_t<W>;
  A numbers[sizeof...(I)][optim::block];
  (decode<std::tuple_element_t<I, typename Rule::Codecs>>(coded[I].codes, *coded[I].absmax, n, numbers[I]),
   ...);
  step_elements<typename Rule::Uncoded, Round, P, W, G>(coefficients, round, n, arrays.copy, arrays.stepped,
                                                        arrays.gradient, numbers[I]...);
  (encode<std::tuple_element_t<I, typename Rule::Codecs>>(numbers[I], n, coded[I].codes, coded[I].absmax),
   ...);
}

/// A block of one piece.
template <class Rule, class Data>
class StepBlock {
 public:
  /// rewrites: the parameter's old bits are not there; where no step is taken it is its master again.
  StepBlock(const Data& data, bool rewrites) : data_(data), rewrites_(rewrites) {}

  /// Elements [first, first + n) of the piece.
  void step(const OptimizerPiece& piece, const StepScalars& scalars, std::int64_t first,
            std::int64_t n) const {
    const std::int64_t at = piece.begin + first;
    const typename Data::Arrays block = data_.arrays_at(at);
    if (scalars.found_inf != 0) return keep(block, n);
    const auto c = data_.coefficients(scalars, piece);
    if constexpr (Data::may_draw) {
      if (data_.rounding.stochastic) {
        std::uint32_t bits[optim::block];
        draw_for(data_.stream(scalars, piece), piece, first, n, bits);
        return step_by<RoundStochastic>(c, {bits}, at, n, block);
      }
    }
    step_by<RoundNearest>(c, {}, at, n, block);
  }

 private:
  using States = typename Data::States;

  /// The old state stays.
  void keep([[maybe_unused]] const typename Data::Arrays& block, [[maybe_unused]] std::int64_t n) const {
    if constexpr (Data::T::master)
      for (std::int64_t i = 0; rewrites_ && i < n; ++i)
        block.copy[i] = static_cast<typename Data::T::P>(block.stepped[i]);
  }

  template <class Round>
  void step_by(const typename Data::Coefficients& c, Round round, std::int64_t at, std::int64_t n,
               const typename Data::Arrays& block) const {
    constexpr auto each = std::make_index_sequence<States::no_states>{};
    if constexpr (std::is_void_v<typename States::Codecs>) {
      step_states(c, round, at, n, block, each);
    } else {
      CodedBlock blocks[States::no_states];
      for (std::size_t s = 0; s < States::no_states; ++s)
        blocks[s] = {data_.states.data[s].codes + at, data_.states.data[s].absmax + at / optim::block};
      step_coded<Rule, Round>(c, round, n, block, blocks, each);
    }
  }

  template <class Round, std::size_t... I>
  void step_states(const typename Data::Coefficients& c, Round round, [[maybe_unused]] std::int64_t at,
                   std::int64_t n, const typename Data::Arrays& block, std::index_sequence<I...>) const {
    using T = typename Data::T;
    step_elements<Rule, Round, typename T::P, typename T::W, typename T::G>(
        c, round, n, block.copy, block.stepped, block.gradient, (data_.states.data[I] + at)...);
  }

  Data data_;
  bool rewrites_;
};

}  // namespace ztrain::kernels
