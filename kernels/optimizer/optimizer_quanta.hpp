#pragma once
// All pieces of a step in one launch on a GPU: a warp steps a quantum of 256 elements, each lane a pack of
// it, and finds the piece that the quantum belongs to. Included by kernel sources only.

#include <cstdint>
#include <tuple>
#include <utility>

#include "kernels/launch/device_array.hpp"
#include "kernels/launch/row_packs.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/optimizer/optimizer_data.hpp"

namespace ztrain::kernels {

static_assert(warp_lanes * pack == quantum);

/// Pieces with elements, in device memory. Piece i has quanta [first[i], first[i + 1]) of the step's.
struct PieceTable {
  const OptimizerPiece* pieces;
  const std::int64_t* first;  ///< [count + 1]
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION std::int64_t piece_of(std::int64_t quantum_index) const {
    return last_begun(count, quantum_index, [this](std::int64_t i) { return first[i]; });
  }
};

/// The maps of a rule's codecs, in memory that a kernel can address.
template <class Codecs>
struct CodeTables {};
template <class States>
using TablesOf = CodeTables<typename States::Codecs>;
template <class First, class... Rest>
struct CodeTables<std::tuple<First, Rest...>> {
  typename First::Map map = First::map;
  CodeTables<std::tuple<Rest...>> rest;

  template <std::size_t s>
  KOKKOS_INLINE_FUNCTION const auto& of() const {
    if constexpr (s == 0)
      return map;
    else
      return rest.template of<s - 1>();
  }
};

/// A lane's part of a quantum: elements [at, at + n) of the arrays, `first` of the piece, n at most a pack.
struct LanePart {
  std::int64_t first, at, n;
};

template <class Threads>
KOKKOS_INLINE_FUNCTION LanePart part_of(const Threads& threads, const OptimizerPiece& piece,
                                        std::int64_t first) {
  const std::int64_t mine = first + threads.rank() * pack, left = piece.count - mine;
  return {mine, piece.begin + mine, left < 0 ? 0 : left < pack ? left : pack};
}

/// The random bits of a lane's elements, as draw_for gives them.
KOKKOS_INLINE_FUNCTION void draw_part(const RandomStream& stream, const OptimizerPiece& piece,
                                      const LanePart& part, std::uint32_t* bits) {
  const bool contiguous = piece.run == piece.stride;
  for (int i = 0; i < pack; ++i) {
    const std::int64_t e = piece.slice_begin + part.first + i;
    const std::int64_t logical =
        contiguous ? e + piece.offset : e / piece.run * piece.stride + piece.offset + e % piece.run;
    bits[i] = draw_one(stream, logical);
  }
}

/// A pack in registers, stepped by the rule: as many of its elements as n says are stored.
template <class Rule, bool whole, class Round, class P, class W, class G, class... A>
KOKKOS_INLINE_FUNCTION void step_pack(const typename Rule::template Coefficients<acc_t<W>>& c, Round round,
                                      std::int64_t n, const BlockArrays<P, W, G>& arrays, A*... states) {
  RowPack<P> copy;
  RowPack<W> stepped = load_pack<whole>(arrays.stepped, n);
  const RowPack<G> gradient = load_pack<whole>(arrays.gradient, n);
  // As step_each does; unrolled, so that nothing leaves the registers.
  using Acc = acc_t<W>;
  unrolled<pack>([&](auto i) {
    const auto element = [&](auto... state) {
      const Acc value = Rule::step(load(stepped.at[i]), static_cast<Acc>(gradient.at[i]), c, state...);
      ((states[i] = static_cast<A>(state)), ...);
      stepped.at[i] = round.template store<W>(value, i);
      if constexpr (!std::is_same_v<P, W>) copy.at[i] = static_cast<P>(value);
    };
    element(static_cast<Acc>(states[i])...);
  });
  store_pack<whole>(stepped, arrays.stepped, n);
  if constexpr (!std::is_same_v<P, W>) store_pack<whole>(copy, arrays.copy, n);
}

/// At most a pack of elements, as step_elements of kernels/optimizer/host/optimizer_blocks.hpp steps many.
/// Unrolled, so that random bits stay in registers.
template <class Rule, class Round, class P, class W, class G, class... M>
KOKKOS_INLINE_FUNCTION void step_each(const typename Rule::template Coefficients<acc_t<W>>& c, Round round,
                                      std::int64_t n, const BlockArrays<P, W, G>& arrays, M*... states) {
  using A = acc_t<W>;
  unrolled<pack>([&](auto i) {
    if (i >= n) return;
    const auto element = [&](auto... state) {
      const A value = Rule::step(load(arrays.stepped[i]), static_cast<A>(arrays.gradient[i]), c, state...);
      ((states[i] = static_cast<M>(state)), ...);
      arrays.stepped[i] = round.template store<W>(value, i);
      if constexpr (!std::is_same_v<P, W>) arrays.copy[i] = static_cast<P>(value);
    };
    element(static_cast<A>(states[i])...);
  });
}

/// States of one type M, beginning with a lane's elements.
template <class Rule, class Round, class P, class W, class G, class... M>
KOKKOS_INLINE_FUNCTION void step_lane(const typename Rule::template Coefficients<acc_t<W>>& c, Round round,
                                      bool whole, std::int64_t n, const BlockArrays<P, W, G>& arrays,
                                      M*... states) {
  if (whole) {
    [&](RowPack<M>... held) {
      step_pack<Rule, true>(c, round, n, arrays, held.at...);
      (store_pack<true>(held, states, n), ...);
    }(load_pack<true>(states, n)...);
  } else {
    step_each<Rule>(c, round, n, arrays, states...);
  }
}

/// A lane's codes, loaded and stored at once.
struct alignas(pack) LaneCodes {
  std::uint8_t at[pack];
};

template <class Codec, class A>
KOKKOS_INLINE_FUNCTION void decode_lane(const typename Codec::Map& map, const CodedBlock& coded, bool whole,
                                        std::int64_t n, A* numbers) {
  const float absmax = *coded.absmax;
  LaneCodes codes;
  if (whole)
    std::memcpy(&codes, __builtin_assume_aligned(coded.codes, pack), pack);
  else
    for (int i = 0; i < pack; ++i) codes.at[i] = i < n ? coded.codes[i] : std::uint8_t{0};
  for (int i = 0; i < pack; ++i)
    numbers[i] = i < n ? static_cast<A>(Codec::decode(map, codes.at[i]) * absmax) : A(0);
}

/// As encode of kernels/optimizer/host/optimizer_blocks.hpp, over the lanes.
template <class Codec, class Threads, class A>
KOKKOS_INLINE_FUNCTION void encode_lane(const Threads& threads, const typename Codec::Map& map,
                                        const A* numbers, bool whole, std::int64_t n,
                                        const CodedBlock& coded) {
  std::uint32_t largest = 0;
  for (int i = 0; i < pack; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(numbers[i])) & 0x7fffffffu;
    largest = i < n && bits > largest ? bits : largest;
  }
  largest = threads.maximum(largest);
  const float scale = std::bit_cast<float>(largest);
  if (threads.rank() == 0) *coded.absmax = scale;
  LaneCodes codes;
  for (int i = 0; i < pack; ++i) {
    const float ratio = static_cast<float>(numbers[i]) / scale;
    const float magnitude = Codec::magnitude(ratio);
    const std::uint8_t code = Codec::with_sign(map.nearest_in(map.cell(magnitude), magnitude), ratio);
    codes.at[i] = largest == 0 ? std::uint8_t{0} : code;
  }
  if (whole)
    std::memcpy(__builtin_assume_aligned(coded.codes, pack), &codes, pack);
  else
    for (int i = 0; i < pack; ++i)
      if (i < n) coded.codes[i] = codes.at[i];
}

/// States as codes: `coded` begins with the lane's codes and holds the block's scale. Of one quantum, by all
/// its lanes.
template <class Rule, class Round, class Threads, class P, class W, class G, std::size_t... I>
KOKKOS_INLINE_FUNCTION void step_coded_lane(const Threads& threads,
                                            const CodeTables<typename Rule::Codecs>& tables,
                                            const typename Rule::Uncoded::template Coefficients<acc_t<W>>& c,
                                            Round round, bool whole, std::int64_t n,
                                            const BlockArrays<P, W, G>& arrays, const CodedBlock* coded,
                                            std::index_sequence<I...>) {
  using A = acc_t<W>;
  A numbers[sizeof...(I)][pack];
  (decode_lane<std::tuple_element_t<I, typename Rule::Codecs>>(tables.template of<I>(), coded[I], whole, n,
                                                               numbers[I]),
   ...);
  if (whole)
    step_pack<typename Rule::Uncoded, true>(c, round, n, arrays, numbers[I]...);
  else
    step_pack<typename Rule::Uncoded, false>(c, round, n, arrays, numbers[I]...);
  (encode_lane<std::tuple_element_t<I, typename Rule::Codecs>>(threads, tables.template of<I>(), numbers[I],
                                                               whole, n, coded[I]),
   ...);
}

}  // namespace ztrain::kernels
