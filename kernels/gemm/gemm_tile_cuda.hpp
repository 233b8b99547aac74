#pragma once
// A tile of a matrix product by a block of threads: summed from tiles of A and B in shared memory, in order
// of k. Included by sources named *.cu only.

#include <cuda_runtime.h>

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels::gemm_tile {

inline constexpr int tile = 64;           // rows and columns of C that a block forms
inline constexpr int depth = 16;          // of the sum at once
inline constexpr int side = 16;           // side x side threads
inline constexpr int part = tile / side;  // each forms part x part elements, `side` apart

/// Element (i, j) of the operand lies at data[i * row + j * col]. to[j][i] = op[i0 + i, j0 + j]; zero
/// outside.
template <class In, class A>
struct Operand {
  const In* data;
  std::int64_t row, col;

  __device__ void load(std::int64_t i0, std::int64_t rows, std::int64_t j0, std::int64_t cols, int thread,
                       A (*to)[tile + 1]) const {
    for (int e = thread; e < tile * depth; e += side * side) {
      // Neighbouring threads read neighbouring elements.
      const int i = col == 1 ? e / depth : e % tile, j = col == 1 ? e % depth : e / tile;
      to[j][i] =
          i0 + i < rows && j0 + j < cols ? static_cast<A>(data[(i0 + i) * row + (j0 + j) * col]) : A(0);
    }
  }
};

/// Forms the tile of C that begins at (i0, j0), by side x side threads.
template <class In, class Out>
__device__ void multiply(const GemmShape& s, const In* a, const In* b, const In* bias, Out* c,
                         std::int64_t i0, std::int64_t j0) {
  using A = acc_t<In>;
  __shared__ A left[depth][tile + 1], right[depth][tile + 1];
  const int thread = static_cast<int>(threadIdx.x), ty = thread / side, tx = thread % side;
  const Operand<In, A> rows{a, s.trans_a ? 1 : s.lda, s.trans_a ? s.lda : 1};
  // Its "rows" are the columns of op(B).
  const Operand<In, A> cols{b, s.trans_b ? s.ldb : 1, s.trans_b ? 1 : s.ldb};
  A sum[part][part] = {};
  for (std::int64_t d0 = 0; d0 < s.k; d0 += depth) {
    rows.load(i0, s.m, d0, s.k, thread, left);
    cols.load(j0, s.n, d0, s.k, thread, right);
    __syncthreads();
    for (int d = 0; d < depth; ++d)
#pragma unroll
      for (int i = 0; i < part; ++i)
#pragma unroll
        for (int j = 0; j < part; ++j) sum[i][j] += left[d][ty + side * i] * right[d][tx + side * j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < part; ++i)
#pragma unroll
    for (int j = 0; j < part; ++j) {
      const std::int64_t row = i0 + ty + side * i, col = j0 + tx + side * j;
      if (row >= s.m || col >= s.n) continue;
      Out& to = c[row * s.ldc + col];
      const A old = (s.bias ? static_cast<A>(bias[col]) : A(0)) + (s.accumulate ? static_cast<A>(to) : A(0));
      to = static_cast<Out>(old + sum[i][j]);
    }
}

}  // namespace ztrain::kernels::gemm_tile
