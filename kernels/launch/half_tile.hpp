#pragma once
// Tiles of bf16 on the stack and their products with sums in fp32, by the processor's own instructions: AMX,
// or AVX512-BF16, which take two neighbouring elements of the depth at once. So a right factor is kept as
// pairs: a word holds two rows' elements of one column. Included by kernel sources only, within
// ZTRAIN_HALF_TILES.

#include "kernels/launch/tile.hpp"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define ZTRAIN_HALF_TILES

#include <immintrin.h>

#include <cstdint>

#include "base/dtype.hpp"

namespace ztrain::kernels::half {

/// Part of the processor that forms products of bf16 tiles.
enum class Unit : std::uint8_t { vectors, tiles };

/// Rows of a left factor, and columns and pairs of rows of a right one: multiples of it.
inline constexpr int quantum = 16;
/// Elements of the depth that are multiplied at once.
inline constexpr int depth_quantum = 2 * quantum;

/// Two bf16, the one of the lower row in the lower half.
using Pair = std::uint32_t;

inline Pair* words(bf16* tile) {
  return reinterpret_cast<Pair*>(tile);
}

/// Sets up the tile registers, eight of 16 rows of 64 bytes, for as long as this object lives. The operating
/// system has let the process use them.
class TileRegisters {
 public:
  explicit TileRegisters(Unit unit) : in_use_(unit == Unit::tiles) {
#if defined(__AMX_BF16__)
    if (!in_use_) return;
    struct alignas(64) {
      std::uint8_t palette = 1, start = 0, unused[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    // g++ 12 takes the instruction for one that reads 8 bytes, and would leave the others unwritten.
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
#endif
  }
  ~TileRegisters() {
#if defined(__AMX_BF16__)
    if (in_use_) _tile_release();
#endif
  }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  bool in_use_;
};

/// C[rows, cols] = A B, or += when add. A is row-major, B of pairs: element (d, j) is a half of
/// b[d / 2 * ldb + j]. What is beyond a factor's own elements up to whole quanta is zero in both.
struct Product {
  const bf16* a;
  std::int64_t lda;
  const Pair* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;

  /// 4 rows by `vectors` vectors of columns.
  template <int vectors, bool add>
  void vector_block(const bf16* left, const Pair* right, float* to, int depth) const {
    constexpr int rows = 4;
    __m512 sum[rows][vectors];
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sum[i][j] = add ? _mm512_loadu_ps(to + i * ldc + j * quantum) : _mm512_setzero_ps();
    for (int d = 0; d < depth; d += 2) {
      __m512bh column[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        column[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + d / 2 * ldb + j * quantum));
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) {
        Pair pair;
        __builtin_memcpy(&pair, left + i * lda + d, sizeof(pair));
        const auto row = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair)));
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], row, column[j]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) _mm512_storeu_ps(to + i * ldc + j * quantum, sum[i][j]);
  }

#if defined(__AMX_BF16__)
  /// 16 rows by `tiles` tiles of columns.
  template <int tiles, bool add>
  void tile_block(const bf16* left, const Pair* right, float* to, int depth) const {
    constexpr auto bytes = [](std::int64_t stride) { return static_cast<std::size_t>(4 * stride); };
    const auto sums = [&](int j) { return to + j * quantum; };
    __asm__ volatile("" ::: "memory");  // the compiler knows of no memory that tiles are loaded from
    if constexpr (add) {
      _tile_loadd(0, sums(0), bytes(ldc));
      if constexpr (tiles > 1) _tile_loadd(1, sums(1), bytes(ldc));
      if constexpr (tiles > 2) _tile_loadd(2, sums(2), bytes(ldc));
      if constexpr (tiles > 3) _tile_loadd(3, sums(3), bytes(ldc));
    } else {
      _tile_zero(0);
      if constexpr (tiles > 1) _tile_zero(1);
      if constexpr (tiles > 2) _tile_zero(2);
      if constexpr (tiles > 3) _tile_zero(3);
    }
    for (int d = 0; d < depth; d += depth_quantum) {
      const Pair* const columns = right + d / 2 * ldb;
      _tile_loadd(4, left + d, bytes(lda) / 2);
      _tile_loadd(5, columns, bytes(ldb));
      _tile_dpbf16ps(0, 4, 5);
      if constexpr (tiles > 1) _tile_loadd(6, columns + quantum, bytes(ldb));
      if constexpr (tiles > 1) _tile_dpbf16ps(1, 4, 6);
      if constexpr (tiles > 2) _tile_loadd(7, columns + 2 * quantum, bytes(ldb));
      if constexpr (tiles > 2) _tile_dpbf16ps(2, 4, 7);
      if constexpr (tiles > 3) _tile_loadd(5, columns + 3 * quantum, bytes(ldb));
      if constexpr (tiles > 3) _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, sums(0), bytes(ldc));
    if constexpr (tiles > 1) _tile_stored(1, sums(1), bytes(ldc));
    if constexpr (tiles > 2) _tile_stored(2, sums(2), bytes(ldc));
    if constexpr (tiles > 3) _tile_stored(3, sums(3), bytes(ldc));
  }
#endif

  /// 16 rows by up to 4 quanta of columns.
  template <int quanta, bool add>
  void block([[maybe_unused]] Unit unit, const bf16* left, const Pair* right, float* to, int depth) const {
#if defined(__AMX_BF16__)
    if (unit == Unit::tiles) return tile_block<quanta, add>(left, right, to, depth);
#endif
    for (int i = 0; i < quantum; i += 4)
      vector_block<quanta, add>(left + i * lda, right, to + i * ldc, depth);
  }

  template <bool add>
  void strip(Unit unit, int i, const tile::Part& part) const {
    const auto [cols, depth] = part;
    const bf16* const left = a + i * lda + depth.begin;
    const Pair* const right = b + depth.begin / 2 * ldb;
    float* const to = c + i * ldc;
    const int n = depth.end - depth.begin;
    int j = cols.begin;
    for (; j + 4 * quantum <= cols.end; j += 4 * quantum) block<4, add>(unit, left, right + j, to + j, n);
    for (; j < cols.end; j += quantum) block<1, add>(unit, left, right + j, to + j, n);
  }
};

/// The product, where rows i .. i + quantum need only part_of(i, quantum), which is called once before each
/// strip. Rows and what of columns and depth is needed are rounded to whole quanta.
template <bool add, class PartOf>
inline void product_within(Unit unit, int rows, const Product& p, const PartOf& part_of) {
  for (int i = 0; i < rows; i += quantum) {
    auto [cols, depth] = part_of(i, quantum);
    cols.begin = cols.begin / quantum * quantum;
    depth.begin = depth.begin / depth_quantum * depth_quantum;
    depth.end = depth.begin + tile::padded(depth.end - depth.begin, depth_quantum);
    p.strip<add>(unit, i, {cols, depth});
  }
}

/// Returns 16 pairs of elements.
inline __m512i pairs_of(__m256bh low, __m256bh high) {
  const __m512i a = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(low));
  const __m512i b = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(high));
  return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

inline __m256bh sixteen(const bf16* from) {
  return reinterpret_cast<__m256bh>(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline __m256bh sixteen(const float* from) {
  return _mm512_cvtneps_pbh(_mm512_loadu_ps(from));
}

/// pairs[i][j] = (tile[2 i][j], tile[2 i + 1][j]) of an even number of rows, rounded from fp32. cols: a
/// multiple of the quantum.
template <class S>
inline void pair_rows(const S* __restrict tile, int ld, int rows, int cols, Pair* __restrict pairs,
                      int pairs_ld) {
  for (int i = 0; i < rows; i += 2)
    for (int j = 0; j < cols; j += quantum)
      _mm512_storeu_si512(pairs + i / 2 * pairs_ld + j,
                          pairs_of(sixteen(tile + i * ld + j), sixteen(tile + (i + 1) * ld + j)));
}

/// to[i][j] = tile[i][j], rounded. cols: a multiple of the quantum.
inline void round_rows(const float* __restrict tile, int ld, int rows, int cols, bf16* __restrict to,
                       int to_ld) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; j += quantum)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * to_ld + j),
                          reinterpret_cast<__m256i>(sixteen(tile + i * ld + j)));
}

/// transposed[j][i] = words[i][j], of pairs or fp32; rows and cols are multiples of the quantum. A row-major
/// tile of bf16, read as words, becomes the pairs of its transpose, and pairs of rows become the rows of
/// their transpose.
template <class Word>
inline void transpose(const Word* __restrict words, std::int64_t ld, int rows, int cols,
                      Word* __restrict transposed, std::int64_t transposed_ld) {
  for (int j = 0; j < cols; j += quantum)
    for (int i = 0; i < rows; i += quantum)
      tile::transpose_square(words + i * ld + j, ld, transposed + j * transposed_ld + i, transposed_ld);
}

/// tile[i][j] = source[i][j] for i < rows, j < cols; zero up to padded_rows and padded_cols.
inline void load(const bf16* source, std::int64_t stride, int rows, int cols, bf16* tile, int ld,
                 int padded_rows, int padded_cols) {
  for (int i = 0; i < padded_rows; ++i) {
    const int count = i < rows ? cols : 0;
    bf16* const to = tile + i * ld;
    if (count > 0) __builtin_memcpy(to, source + i * stride, static_cast<std::size_t>(count) * sizeof(bf16));
    if (count < padded_cols)
      __builtin_memset(static_cast<void*>(to + count), 0,
                       static_cast<std::size_t>(padded_cols - count) * sizeof(bf16));
  }
}

}  // namespace ztrain::kernels::half

#endif
