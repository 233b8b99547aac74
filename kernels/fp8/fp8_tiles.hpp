#pragma once
// Codes of a matrix and, by the same reading of it, their transpose. Blocks of 16 rows are transposed in the
// registers of a thread, four bytes by four. Included by kernel sources only.

#include <cstdint>

#include "kernels/fp8/fp8_scale.hpp"
#include "kernels/launch/row_packs.hpp"

namespace ztrain::kernels {

/// Rows of a block, and what rows and columns of a matrix that is transposed are multiples of.
inline constexpr int fp8_granule = 16;

/// Four words of four bytes each, transposed as a 4 x 4 matrix.
KOKKOS_INLINE_FUNCTION void transpose_words(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                            std::uint32_t& d) {
  constexpr std::uint32_t even = 0x00ff00ffu, odd = 0xff00ff00u;
  const std::uint32_t ab0 = (a & even) | (b << 8 & odd), ab1 = (a >> 8 & even) | (b & odd);
  const std::uint32_t cd0 = (c & even) | (d << 8 & odd), cd1 = (c >> 8 & even) | (d & odd);
  a = (ab0 & 0xffffu) | cd0 << 16;
  b = (ab1 & 0xffffu) | cd1 << 16;
  c = ab0 >> 16 | (cd0 & 0xffff0000u);
  d = ab1 >> 16 | (cd1 & 0xffff0000u);
}

/// 16 rows of `words` times four bytes.
template <int words>
struct ByteBlock {
  std::uint32_t at[fp8_granule][words];

  /// Line j of `to` = column j; lines are `stride` bytes apart and begin on 16 bytes.
  KOKKOS_INLINE_FUNCTION void store_transposed(std::uint8_t* to, std::int64_t stride) {
    unrolled<words>([&](auto w) {
      unrolled<fp8_granule / 4>([&](auto quarter) {
        constexpr int i = 4 * decltype(quarter)::value;
        transpose_words(at[i][w], at[i + 1][w], at[i + 2][w], at[i + 3][w]);
      });
      unrolled<4>([&](auto byte) {
        const PackWords line{{at[byte][w], at[4 + byte][w], at[8 + byte][w], at[12 + byte][w]}};
        *reinterpret_cast<PackWords*>(to + (4 * w + byte) * stride) = line;
      });
    });
  }
};

/// Values to encode, and where their codes go. transposed is [cols, rows] if it is asked for.
template <class Code>
struct Fp8Target {
  const bf16* x;  ///< [rows, cols]
  std::int64_t rows, cols;
  Code* codes;
  std::uint8_t* transposed;
};

/// The largest magnitudes of parts of a matrix, from which each team of threads makes the scale.
struct Fp8Found {
  const float* largest;
  std::int64_t count;
};

template <class Threads>
KOKKOS_INLINE_FUNCTION std::uint32_t largest_by(const Threads& threads, const Fp8Found& found) {
  std::uint32_t largest = 0;
  for (std::int64_t i = threads.rank(); i < found.count; i += threads.size()) {
    const std::uint32_t bits = magnitude_bits(found.largest[i]);
    largest = bits > largest ? bits : largest;
  }
  return threads.maximum(largest);
}

/// Tiles of 128 x 256 elements, by teams of 256 threads. A thread has 16 x 8; the 32 of a warp lie 4 below
/// one another by 8 beside, so that a warp reads 128 neighbouring bytes, and writes 64 to either result; the
/// pairs of warps below one another complete the lines of 128 bytes.
template <class Code, bool transposed>
struct Fp8Tiles {
  static constexpr int threads = 256, wide = 8, tall = 4;
  static constexpr std::int64_t height = 2 * tall * fp8_granule, width = 4 * wide * pack;

  Fp8Target<Code> target;
  Fp8Found found;
  float* scale;

  std::int64_t across() const { return ceil_div(target.cols, width); }
  std::int64_t count() const { return ceil_div(target.rows, height) * across(); }

  /// Tile `index`; the first one's team writes the scale as well.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void run(const Threads& team, std::int64_t index) const {
    const float value = fp8_scale<Code>(largest_by(team, found));
    if (index == 0 && team.rank() == 0) *scale = value;
    const float factor = inverse_scale(value);
    const std::int64_t tiles = (target.cols + width - 1) / width;
    const std::int64_t top = index / tiles * height, left = index % tiles * width;
    for (int t = team.rank(); t < threads; t += team.size()) {
      const int warp = t / warp_size, lane = t % warp_size;
      const std::int64_t row = top + (warp % 2 * tall + lane / wide) * fp8_granule;
      const std::int64_t col = left + (warp / 2 * wide + lane % wide) * pack;
      if (row < target.rows && col < target.cols) block(row, col, factor);
    }
  }

 private:
  static constexpr int warp_size = wide * tall;
  static_assert(warp_size == 32);

  /// Without a transpose, rows may end within the block. All is read before anything is written, so that
  /// many loads are on their way at once.
  KOKKOS_INLINE_FUNCTION void block(std::int64_t row, std::int64_t col, float factor) const {
    const std::int64_t at = row * target.cols + col, left = target.rows - row;
    ByteBlock<2> bytes;
    unrolled<fp8_granule>([&](auto i) {
      if (!transposed && i >= left) return;
      const PackedCodes line = codes_of_pack<Code>(target.x + at + i * target.cols, factor);
      bytes.at[i][0] = line.low;
      bytes.at[i][1] = line.high;
    });
    unrolled<fp8_granule>([&](auto i) {
      if (!transposed && i >= left) return;
      *reinterpret_cast<PackedCodes*>(target.codes + at + i * target.cols) = {bytes.at[i][0], bytes.at[i][1]};
    });
    if constexpr (transposed)
      bytes.store_transposed(target.transposed + col * target.rows + row, target.rows);
  }
};

/// Bytes [row, row + 16) x [col, col + 16) of from[rows, cols], transposed.
KOKKOS_INLINE_FUNCTION void transpose_block(const std::uint8_t* from, std::uint8_t* to, std::int64_t rows,
                                            std::int64_t cols, std::int64_t row, std::int64_t col) {
  ByteBlock<4> bytes;
  unrolled<fp8_granule>([&](auto i) {
    const PackWords line = *reinterpret_cast<const PackWords*>(from + (row + i) * cols + col);
    unrolled<4>([&](auto w) { bytes.at[i][w] = line.at[w]; });
  });
  bytes.store_transposed(to + col * rows + row, rows);
}

}  // namespace ztrain::kernels
