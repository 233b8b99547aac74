#pragma once
// Operands of a product, laid out for AMX: panels of 32 rows (of a left operand) or columns (of a right one),
// in blocks of 32 elements of the depth. A block is two tiles of 16 rows of 64 bytes for each part of a
// number: one part for bf16; three for fp32, which is the sum of three bf16. Included by kernel sources only.

#include "kernels/launch/half_tile.hpp"

#if defined(ZTRAIN_HALF_TILES) && defined(__AMX_BF16__)
#define ZTRAIN_GEMM_TILES

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace ztrain::kernels::gemm_tiles {

/// Rows or columns of a panel, and elements of the depth in a block.
inline constexpr int edge = 2 * half::quantum;
static_assert(edge == half::depth_quantum);
inline constexpr int tile_bytes = 1024;

template <class T>
inline constexpr int parts = std::is_same_v<T, float> ? 3 : 1;
/// Of one part, and of all.
inline constexpr int part_bytes = 2 * tile_bytes;
template <class T>
inline constexpr int block_bytes = parts<T>* part_bytes;

/// Element (i, d) is data[i * across + d * along], d counting the depth; one of the strides is 1.
template <class T>
struct Operand {
  const T* data;
  std::int64_t across, along;

  Operand at(std::int64_t i, std::int64_t d) const { return {data + i * across + d * along, across, along}; }
};

/// How much of a panel an operand has: what is beyond becomes zero.
struct Extent {
  int width, depth;
};

/// Words of two bf16 each, one vector of 16 for each part.
template <class T>
using Words = __m512i[parts<T>];

/// The first `count` of 32.
inline __mmask32 first_of_32(int count) {
  return static_cast<__mmask32>((std::uint64_t{1} << std::clamp(count, 0, 32)) - 1);
}
/// The first `count` of 16.
inline __mmask16 first(int count) {
  return static_cast<__mmask16>((1u << std::clamp(count, 0, 16)) - 1);
}

/// The upper halves of numbers, which are bf16 of the same sign, as fp32. Of infinity, that of the largest
/// number: so what remains of infinity is infinity, and not NaN.
inline __m512 upper_half(__m512 x) {
  constexpr int smaller_magnitude = 2;
  const __m512 finite = _mm512_range_ps(x, _mm512_set1_ps(0x1.fffffep127f), smaller_magnitude);
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(finite), _mm512_set1_epi32(~0xffff)));
}

/// Words of the parts of two numbers each, the first in the lower half. The 24 bits of a number are the 8 of
/// its upper half, the 8 of that of what remains, and the rest.
inline void split(__m512 low, __m512 high, Words<float>& words) {
  const auto join = [](__m512 a, __m512 b) {
    const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(a), 16);
    return _mm512_mask_mov_epi16(lower, 0xaaaaaaaa, _mm512_castps_si512(b));
  };
  for (int part = 0; part < 2; ++part) {
    const __m512 a = upper_half(low), b = upper_half(high);
    words[part] = join(a, b);
    low = _mm512_sub_ps(low, a);
    high = _mm512_sub_ps(high, b);
  }
  words[2] = join(low, high);
}

/// Of elements (2 w, 2 w + 1) of `count` that follow each other, at most 32.
inline void neighbours(const bf16* from, int count, Words<bf16>& words) {
  words[0] = _mm512_maskz_loadu_epi16(first_of_32(count), from);
}
inline void neighbours(const float* from, int count, Words<float>& words) {
  const __m512 a = _mm512_maskz_loadu_ps(first(count), from);
  const __m512 b = _mm512_maskz_loadu_ps(first(count - 16), from + 16);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  split(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b), words);
}

/// Of element w of two rows; `rows` of them are there, and `count` elements of each, at most 16.
inline void beneath(const bf16* from, std::int64_t stride, int rows, int count, Words<bf16>& words) {
  const auto row = [&](int i) {
    return _mm256_maskz_loadu_epi16(rows > i ? first(count) : first(0), from + i * stride);
  };
  words[0] = half::pairs_of(reinterpret_cast<__m256bh>(row(0)), reinterpret_cast<__m256bh>(row(1)));
}
inline void beneath(const float* from, std::int64_t stride, int rows, int count, Words<float>& words) {
  const auto row = [&](int i) {
    return _mm512_maskz_loadu_ps(rows > i ? first(count) : first(0), from + i * stride);
  };
  split(row(0), row(1), words);
}

/// Which operand: a left one's tiles have a row for each of its rows, with the words of the depth; a right
/// one's have a row for each pair of the depth, with a word for each of its columns.
enum class Side : std::uint8_t { left, right };

/// One tile of each part, which lie part_bytes apart.
template <Side side, class T>
inline void pack_tile(const Operand<T>& from, Extent has, std::byte* to) {
  using Word = tile::Register<half::Pair>;
  Word words[parts<T>][half::quantum];
  const bool along_rows = from.along == 1;
#pragma GCC unroll 16
  for (int i = 0; i < half::quantum; ++i) {
    Words<T> row;
    if (along_rows)
      neighbours(from.data + i * from.across, i < has.width ? has.depth : 0, row);
    else
      beneath(from.data + 2 * i * from.along, from.along, has.depth - 2 * i, has.width, row);
    for (int part = 0; part < parts<T>; ++part) words[part][i] = reinterpret_cast<Word>(row[part]);
  }
  for (int part = 0; part < parts<T>; ++part) {
    if (along_rows != (side == Side::left)) tile::transpose_registers<half::Pair>(words[part]);
    for (int i = 0; i < half::quantum; ++i)
      _mm512_storeu_si512(to + part * part_bytes + i * 64, reinterpret_cast<__m512i>(words[part][i]));
  }
}

/// One panel: its blocks follow each other in the order of the depth.
template <Side side, class T>
inline void pack_panel(const Operand<T>& from, Extent has, std::byte* to) {
  for (int d = 0; d < has.depth; d += edge, to += block_bytes<T>)
    for (int half = 0; half < 2; ++half) {
      const int i = half * half::quantum;
      pack_tile<side>(from.at(i, d), {has.width - i, has.depth - d}, to + half * tile_bytes);
    }
}

}  // namespace ztrain::kernels::gemm_tiles

#endif
