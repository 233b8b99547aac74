#pragma once
// Small dense tiles on the stack and their product, the building block of attention and of the reference
// gemm. T is float or double: the type that sums are formed in. The loops are blocked for the vector
// registers of the CPU.

#include <cstdint>

namespace ztrain::kernels::tile {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int product_vectors = 4;
#else
inline constexpr int vector_bytes = 32;
inline constexpr int product_vectors = 2;
#endif

/// Rows and columns of tiles are padded to multiples of these.
inline constexpr int row_quantum = 4;
inline constexpr int column_quantum = 16;

template <class T>
struct PackOf;
template <>
struct PackOf<float> {
  using type __attribute__((vector_size(vector_bytes), aligned(4), may_alias)) = float;
};
template <>
struct PackOf<double> {
  using type __attribute__((vector_size(vector_bytes), aligned(8), may_alias)) = double;
};
template <class T>
using Pack = typename PackOf<T>::type;
template <class T>
inline constexpr int pack_width = vector_bytes / static_cast<int>(sizeof(T));

/// Four rows by `vectors` packs of C (+)= A B, held in registers over the whole of depth.
template <class T, int vectors, bool add>
inline void product_block(int depth, const T* __restrict a, std::int64_t a_row, std::int64_t a_depth,
                          const T* __restrict b, std::int64_t ldb, T* __restrict c, std::int64_t ldc) {
  using P = Pack<T>;
  constexpr int width = pack_width<T>;
  P sum[row_quantum][vectors];
#pragma GCC unroll 4
  for (int i = 0; i < row_quantum; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      if constexpr (add) {
        sum[i][j] = *reinterpret_cast<const P*>(c + i * ldc + j * width);
      } else {
        sum[i][j] = P{};
      }
    }
  for (int d = 0; d < depth; ++d) {
    P left[row_quantum];
#pragma GCC unroll 4
    for (int i = 0; i < row_quantum; ++i) left[i] = a[i * a_row + d * a_depth] - P{};
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      P right = *reinterpret_cast<const P*>(b + d * ldb + j * width);
#if defined(__AVX__)
      // Keeps it in a register: the compiler would fold the load into each of the four multiplications, and
      // four loads of the same vector cost a fifth of the speed.
      __asm__("" : "+v"(right));
#endif
#pragma GCC unroll 4
      for (int i = 0; i < row_quantum; ++i) sum[i][j] += left[i] * right;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < row_quantum; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) *reinterpret_cast<P*>(c + i * ldc + j * width) = sum[i][j];
}

template <class T, int vectors, bool add>
inline void product_columns(int rows, int depth, const T* a, std::int64_t a_row, std::int64_t a_depth,
                            const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  for (int i = 0; i < rows; i += row_quantum)
    product_block<T, vectors, add>(depth, a + i * a_row, a_row, a_depth, b, ldb, c + i * ldc, ldc);
}

/// C[rows, cols] = A B, or += when add. Element (i, d) of A is a[i * a_row + d * a_depth], so that a
/// transposed A needs no copy; B and C are row-major. rows and cols are rounded up to the quanta: the padding
/// must be readable in A and B, and is written in C.
template <class T, bool add>
inline void product(int rows, int cols, int depth, const T* a, std::int64_t a_row, std::int64_t a_depth,
                    const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  constexpr int width = pack_width<T>;
  int j = 0;
  for (; j + product_vectors * width <= cols; j += product_vectors * width)
    product_columns<T, product_vectors, add>(rows, depth, a, a_row, a_depth, b + j, ldb, c + j, ldc);
  for (; j + 2 * width <= cols; j += 2 * width)
    product_columns<T, 2, add>(rows, depth, a, a_row, a_depth, b + j, ldb, c + j, ldc);
  for (; j < cols; j += width)
    product_columns<T, 1, add>(rows, depth, a, a_row, a_depth, b + j, ldb, c + j, ldc);
}

constexpr int padded(int count, int quantum) {
  return (count + quantum - 1) / quantum * quantum;
}

/// tile[i][j] = source[i][j] for i < rows, j < cols; zero up to padded_rows and padded_cols.
template <class S, class T>
inline void load(const S* source, std::int64_t stride, int rows, int cols, T* __restrict tile, int ld,
                 int padded_rows, int padded_cols) {
  for (int i = 0; i < padded_rows; ++i) {
    const S* __restrict from = source + i * stride;
    T* __restrict to = tile + i * ld;
    const int count = i < rows ? cols : 0;
    int begin = 0;
    for (; begin + column_quantum <= count;
         begin += column_quantum)  // short vector moves rather than a call of memcpy
      for (int j = begin; j < begin + column_quantum; ++j) to[j] = static_cast<T>(from[j]);
    for (int j = begin; j < count; ++j) to[j] = static_cast<T>(from[j]);
    for (int j = count; j < padded_cols; ++j) to[j] = T(0);
  }
}

/// transposed[j][i] = factor * tile[i][j] for all i < rows, j < cols.
template <class T>
inline void transpose(const T* __restrict tile, int ld, int rows, int cols, T factor,
                      T* __restrict transposed, int transposed_ld) {
  for (int j = 0; j < cols; ++j)
    for (int i = 0; i < rows; ++i) transposed[j * transposed_ld + i] = factor * tile[i * ld + j];
}

}  // namespace ztrain::kernels::tile
