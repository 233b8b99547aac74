#pragma once
// A tile of a product of 16-bit matrices by the tensor cores of a multiprocessor, summed in fp32 in order of
// k. While a step of the depth is multiplied from shared memory, the next is on its way to registers.
// Included by sources named *.cu only.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <type_traits>

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels::tensor_tile {

inline constexpr int tile = 128;     // rows and columns of C that a block forms
inline constexpr int depth = 32;     // of the sum at once
inline constexpr int threads = 256;  // 2 x 4 warps, each of which forms 64 x 32 elements
inline constexpr int edge = 16;      // of the squares that tensor cores multiply
inline constexpr int down = 4;       // squares of a warp
inline constexpr int across = 2;
inline constexpr int vector = 8;  // elements that move at once
inline constexpr int gap = 8;     // elements between rows in shared memory, against conflicts of its banks
inline constexpr int moves = tile * depth / vector / threads;  // of a thread, for an operand and a step
inline constexpr int most = depth * (tile + gap) > tile*(depth + gap) ? depth*(tile + gap)
                                                                      : tile*(depth + gap);

template <class T>
using Device = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat16, __half>;

/// A thread's part of one operand. Element (i, d), d counting the depth, is data[i * stride + d], or
/// data[d * stride + i] where `turned`; shared memory has it in the same order.
template <class T, bool turned>
class Side {
 public:
  static constexpr int inner = turned ? tile : depth, row = inner + gap;
  using Layout = std::conditional_t<turned, nvcuda::wmma::col_major, nvcuda::wmma::row_major>;

  /// From row or column i0 on, of which `width` are there.
  __device__ Side(const T* data, std::int64_t stride, std::int64_t i0, std::int64_t width, int thread)
      : y_(thread * vector / inner), x_(thread * vector % inner), stride_(stride) {
    width_ = static_cast<int>(min(width - i0, std::int64_t{tile}));
    from_ = data + (turned ? y_ * stride + i0 + x_ : (i0 + y_) * stride + x_);
  }

  /// Loads this thread's part of the next step of the depth, of which `left` is there. Elements outside are
  /// zero.
  __device__ void load(int left, uint4 (&to)[moves]) {
#pragma unroll
    for (int move = 0; move < moves; ++move) {
      const int y = y_ + move * apart;
      to[move] = {0, 0, 0, 0};
      if (y < (turned ? left : width_) && x_ < (turned ? width_ : left))
        to[move] = *reinterpret_cast<const uint4*>(from_ + move * apart * stride_);
    }
    from_ += turned ? depth * stride_ : depth;
  }

  __device__ void store(const uint4 (&from)[moves], Device<T>* to) const {
#pragma unroll
    for (int move = 0; move < moves; ++move)
      *reinterpret_cast<uint4*>(to + (y_ + move * apart) * row + x_) = from[move];
  }

  /// Returns where the square (i, d) begins.
  static __device__ const Device<T>* square(const Device<T>* from, int i, int d) {
    return from + (turned ? d * row + i : i * row + d);
  }

 private:
  static constexpr int apart = threads * vector / inner;  ///< rows between the vectors of a thread
  static_assert(threads * vector % inner == 0);
  int y_, x_, width_;
  std::int64_t stride_;
  const T* from_;
};

/// Shared memory of one block of threads.
template <class In>
struct Shared {
  alignas(128) Device<In> left[2][most];
  alignas(128) Device<In> right[2][most];
};

/// Writes the sums of a warp square by square through its patch of shared memory.
template <class In, class Out, class Sums>
__device__ void write_sums(const GemmShape& s, const In* bias, Out* c, std::int64_t i0, std::int64_t j0,
                           const Sums (&sums)[down][across], float* patch) {
  constexpr int row = edge + 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < down; ++i)
#pragma unroll
    for (int j = 0; j < across; ++j) {
      nvcuda::wmma::store_matrix_sync(patch, sums[i][j], row, nvcuda::wmma::mem_row_major);
      __syncwarp();
#pragma unroll 1
      for (int step = 0; step < edge / 2; ++step) {
        const int y = 2 * step + lane / edge, x = lane % edge;
        const std::int64_t r = i0 + i * edge + y, q = j0 + j * edge + x;
        if (r >= s.m || q >= s.n) continue;
        Out& to = c[r * s.ldc + q];
        const float old =
            (s.bias ? static_cast<float>(bias[q]) : 0.0f) + (s.accumulate ? static_cast<float>(to) : 0.0f);
        to = static_cast<Out>(old + patch[y * row + x]);
      }
      __syncwarp();
    }
}

/// Forms the tile of C that begins at (i0, j0), by a block of `threads`. trans_a and trans_b are the shape's.
/// Rows of A and B begin on multiples of 16 bytes, and have whole vectors.
template <bool trans_a, bool trans_b, class In, class Out>
__device__ void multiply(const GemmShape& s, const In* a, const In* b, const In* bias, Out* c,
                         std::int64_t i0, std::int64_t j0) {
  namespace wmma = nvcuda::wmma;
  using Left = Side<In, trans_a>;
  using Right = Side<In, !trans_b>;
  // B's squares are those of its transpose, so that their layout is the other one.
  using RightLayout = std::conditional_t<trans_b, wmma::col_major, wmma::row_major>;
  __shared__ Shared<In> shared;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int top = warp / 4 * down * edge, start = warp % 4 * across * edge;
  Left left(a, s.lda, i0, s.m, thread);
  Right right(b, s.ldb, j0, s.n, thread);
  wmma::fragment<wmma::accumulator, edge, edge, edge, float> sums[down][across];
#pragma unroll
  for (int i = 0; i < down; ++i)
#pragma unroll
    for (int j = 0; j < across; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
  uint4 next_left[moves], next_right[moves];
  const auto fetch = [&](int depth_left) {
    left.load(depth_left, next_left);
    right.load(depth_left, next_right);
  };
  const auto keep = [&](int buffer) {
    left.store(next_left, shared.left[buffer]);
    right.store(next_right, shared.right[buffer]);
  };
  const int length = static_cast<int>(s.k);
  fetch(length);
  keep(0);
  __syncthreads();
  int buffer = 0;
  for (int d0 = 0; d0 < length; d0 += depth, buffer ^= 1) {
    const int rest = length - d0 - depth;
    if (rest > 0) fetch(rest);
#pragma unroll 1
    for (int d = 0; d < depth; d += edge) {
      wmma::fragment<wmma::matrix_b, edge, edge, edge, Device<In>, RightLayout> y[across];
#pragma unroll
      for (int j = 0; j < across; ++j)
        wmma::load_matrix_sync(y[j], Right::square(shared.right[buffer], start + j * edge, d), Right::row);
#pragma unroll
      for (int i = 0; i < down; ++i) {
        wmma::fragment<wmma::matrix_a, edge, edge, edge, Device<In>, typename Left::Layout> x;
        wmma::load_matrix_sync(x, Left::square(shared.left[buffer], top + i * edge, d), Left::row);
#pragma unroll
        for (int j = 0; j < across; ++j) wmma::mma_sync(sums[i][j], x, y[j], sums[i][j]);
      }
    }
    if (rest > 0) keep(buffer ^ 1);
    __syncthreads();
  }
  constexpr int patch = edge * (edge + 4);
  static_assert(sizeof(shared) >= threads / 32 * patch * sizeof(float));
  write_sums(s, bias, c, i0 + top, j0 + start, sums, reinterpret_cast<float*>(&shared) + warp * patch);
}

}  // namespace ztrain::kernels::tensor_tile
