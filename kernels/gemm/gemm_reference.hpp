#pragma once
// Matrix product for the types that the vendor library lacks: a plain loop over cache blocks.

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels {

namespace gemm_detail {

inline constexpr int rows = 64, cols = 64, depth = 64;

/// to[j][i] = op[i0 + i, j0 + j], where element (i, j) of op is data[i * row_stride + j * col_stride]; zero
/// outside.
template <class S, class A>
void load(const S* data, std::int64_t row_stride, std::int64_t col_stride, int count_rows, int count_cols,
          A* __restrict to) {
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j)
      to[i * 64 + j] =
          i < count_rows && j < count_cols ? static_cast<A>(data[i * row_stride + j * col_stride]) : A(0);
}

template <class In, class Out>
void store(const acc_t<In>* __restrict sum, int count_rows, int count_cols, const In* bias, bool accumulate,
           Out* c, std::int64_t ldc) {
  using A = acc_t<In>;
  for (int i = 0; i < count_rows; ++i)
    for (int j = 0; j < count_cols; ++j) {
      const A old =
          (bias ? static_cast<A>(bias[j]) : A(0)) + (accumulate ? static_cast<A>(c[i * ldc + j]) : A(0));
      c[i * ldc + j] = static_cast<Out>(old + sum[i * cols + j]);
    }
}

}  // namespace gemm_detail

/// The 64 x 64 block of C at (i0, j0). The sum over k is in order of k.
template <class In, class Out>
void gemm_reference_block(const GemmShape& s, const In* a, const In* b, const In* bias, Out* c,
                          std::int64_t i0, std::int64_t j0) {
  using namespace gemm_detail;
  using A = acc_t<In>;
  alignas(64) A left[rows * depth], right[depth * cols], sum[rows * cols] = {};
  const std::int64_t a_row = s.trans_a ? 1 : s.lda, a_col = s.trans_a ? s.lda : 1;
  const std::int64_t b_row = s.trans_b ? 1 : s.ldb, b_col = s.trans_b ? s.ldb : 1;
  const int m = static_cast<int>(std::min<std::int64_t>(rows, s.m - i0));
  const int n = static_cast<int>(std::min<std::int64_t>(cols, s.n - j0));
  for (std::int64_t d0 = 0; d0 < s.k; d0 += depth) {
    const int d = static_cast<int>(std::min<std::int64_t>(depth, s.k - d0));
    load(a + i0 * a_row + d0 * a_col, a_row, a_col, m, d, left);
    load(b + d0 * b_row + j0 * b_col, b_row, b_col, d, n, right);
    tile::product<A, true>(m, cols, d, left, depth, 1, right, cols, sum, cols);
  }
  store(sum, m, n, s.bias ? bias + j0 : nullptr, s.accumulate, c + i0 * s.ldc + j0, s.ldc);
}

}  // namespace ztrain::kernels
