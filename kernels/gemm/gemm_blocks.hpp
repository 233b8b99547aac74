#pragma once
// Matrix products for the types that the vendor library lacks: plain loops over cache blocks. Included by
// kernel sources only.

#include <algorithm>
#include <cstdint>

#include "base/shape.hpp"
#include "kernels/launch/rows.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels::gemm_blocks {

inline constexpr int rows = 64, cols = 64, depth = 64;

/// to[i][j] = op[i, j], where element (i, j) of op is data[i * row_stride + j * col_stride]; zero
/// outside.
template <class S, class A>
void load(const S* data, std::int64_t row_stride, std::int64_t col_stride, int count_rows, int count_cols,
          A* __restrict to) {
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j)
      to[i * 64 + j] =
          i < count_rows && j < count_cols ? static_cast<A>(data[i * row_stride + j * col_stride]) : A(0);
}

/// An operand from the block's first element on, and the elements from one of its rows and columns to the
/// next.
template <class T>
struct Operand {
  const T* data;
  std::int64_t row, col;
};

/// sum [rows, cols] += m rows of A times n columns of B over k, in order of k.
template <class L, class R, class A>
void add_products(const Operand<L>& a, const Operand<R>& b, std::int64_t k, int m, int n, A* sum) {
  alignas(64) A left[rows * depth], right[depth * cols];
  for (std::int64_t d0 = 0; d0 < k; d0 += depth) {
    const int d = static_cast<int>(std::min<std::int64_t>(depth, k - d0));
    load(a.data + d0 * a.col, a.row, a.col, m, d, left);
    load(b.data + d0 * b.row, b.row, b.col, d, n, right);
    tile::product<A, true>(m, cols, d, left, depth, 1, right, cols, sum, cols);
  }
}

/// block(i0, j0, m, n) for each block of C, of at most rows x cols.
template <class Shape, class Block>
void for_each(Exec& exec, const Shape& s, const Block& block) {
  const std::int64_t across = ceil_div(s.n, cols);
  for_rows(exec, ceil_div(s.m, rows) * across, [=](std::int64_t i) {
    const std::int64_t i0 = i / across * rows, j0 = i % across * cols;
    block(i0, j0, static_cast<int>(std::min<std::int64_t>(rows, s.m - i0)),
          static_cast<int>(std::min<std::int64_t>(cols, s.n - j0)));
  });
}

}  // namespace ztrain::kernels::gemm_blocks
