#pragma once
// Small dense tiles on the stack and their product, the building block of attention and of the reference
// gemm. T is float or double: the type that sums are formed in. The loops are blocked for the vector
// registers of the CPU.

#include <cstdint>
#include <utility>

namespace ztrain::kernels::tile {

// A product holds product_rows x product_vectors packs of sums in registers: few enough to leave some of
// AVX-512's 32 registers, or of the 16 of others, to the factors. Without AVX a pack takes two registers.
#if defined(__AVX512F__)
inline constexpr int register_bytes = 64, vector_bytes = 64, product_rows = 4, product_vectors = 4;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32, vector_bytes = 32, product_rows = 6, product_vectors = 2;
#else
inline constexpr int register_bytes = 16, vector_bytes = 32, product_rows = 6, product_vectors = 1;
#endif

/// Rows and columns of tiles are padded to multiples of these.
inline constexpr int row_quantum = 4;
inline constexpr int column_quantum = 16;

constexpr int padded(int count, int quantum) {
  return (count + quantum - 1) / quantum * quantum;
}

template <class T, int bytes>
struct VectorOf;
template <int bytes>
struct VectorOf<float, bytes> {
  using type __attribute__((vector_size(bytes), aligned(4), may_alias)) = float;
};
template <int bytes>
struct VectorOf<double, bytes> {
  using type __attribute__((vector_size(bytes), aligned(8), may_alias)) = double;
};
template <int bytes>
struct VectorOf<std::uint32_t, bytes> {
  using type __attribute__((vector_size(bytes), aligned(4), may_alias)) = std::uint32_t;
};
template <class T>
using Pack = typename VectorOf<T, vector_bytes>::type;
template <class T>
inline constexpr int pack_width = vector_bytes / static_cast<int>(sizeof(T));

/// `rows` rows by `vectors` packs of C (+)= A B, held in registers over the whole of depth.
template <class T, int rows, int vectors, bool add>
inline void product_block(int depth, const T* __restrict a, std::int64_t a_row, std::int64_t a_depth,
                          const T* __restrict b, std::int64_t ldb, T* __restrict c, std::int64_t ldc) {
  using P = Pack<T>;
  constexpr int width = pack_width<T>;
  P sum[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      if constexpr (add) {
        sum[i][j] = *reinterpret_cast<const P*>(c + i * ldc + j * width);
      } else {
        sum[i][j] = P{};
      }
    }
  for (int d = 0; d < depth; ++d) {
    P right[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      right[j] = *reinterpret_cast<const P*>(b + d * ldb + j * width);
#if defined(__AVX__)
      // Keeps it in a register: the compiler would fold the load into each of the multiplications, and that
      // many loads of the same vector cost a fifth of the speed.
      __asm__("" : "+v"(right[j]));
#endif
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const P left = a[i * a_row + d * a_depth] - P{};
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) sum[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) *reinterpret_cast<P*>(c + i * ldc + j * width) = sum[i][j];
}

/// Rows or columns [begin, end).
struct Span {
  int begin, end;
};

/// The part of the right factor that a strip of rows needs.
struct Part {
  Span cols, depth;
};

/// C[rows, cols] = A B, or += when add. Element (i, d) of A is a[i * a_row + d * a_depth], so that a
/// transposed A needs no copy; B and C are row-major.
template <class T>
struct Product {
  const T* a;
  std::int64_t a_row, a_depth;
  const T* b;
  std::int64_t ldb;
  T* c;
  std::int64_t ldc;

  template <int rows, bool add>
  void strip(int i, const Part& part) const {
    const auto [cols, depth] = part;
    constexpr int width = pack_width<T>;
    const T* const left = a + i * a_row + depth.begin * a_depth;
    const T* const right = b + depth.begin * ldb;
    T* const to = c + i * ldc;
    const int n = depth.end - depth.begin;
    int j = cols.begin;
    for (; j + product_vectors * width <= cols.end; j += product_vectors * width)
      product_block<T, rows, product_vectors, add>(n, left, a_row, a_depth, right + j, ldb, to + j, ldc);
    if constexpr (product_vectors > 2)
      for (; j + 2 * width <= cols.end; j += 2 * width)
        product_block<T, rows, 2, add>(n, left, a_row, a_depth, right + j, ldb, to + j, ldc);
    for (; j < cols.end; j += width)
      product_block<T, rows, 1, add>(n, left, a_row, a_depth, right + j, ldb, to + j, ldc);
  }
};

/// The product, where rows i .. i + n need only part_of(i, n), which is called once before each strip. Rows
/// are rounded up to row_quantum, columns to whole packs from where they begin: the padding must be readable
/// in A and B, and is written in C.
template <class T, bool add, class PartOf>
inline void product_within(int rows, const Product<T>& p, const PartOf& part_of) {
  const int end = padded(rows, row_quantum);
  int i = 0;
  for (; end - i > row_quantum && end - i != 2 * row_quantum; i += product_rows)
    p.template strip<product_rows, add>(i, part_of(i, product_rows));
  for (; i < end; i += row_quantum) p.template strip<row_quantum, add>(i, part_of(i, row_quantum));
}

/// All of it. Panels of columns come one after the other, so that one of B stays in the first cache.
template <class T, bool add>
inline void product(int rows, int cols, int depth, const T* a, std::int64_t a_row, std::int64_t a_depth,
                    const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  constexpr int panel = product_vectors * pack_width<T>;
  for (int j = 0; j < cols; j += panel) {
    const Product<T> p{a, a_row, a_depth, b + j, ldb, c + j, ldc};
    const int width = cols - j < panel ? cols - j : panel;
    product_within<T, add>(rows, p, [&](int, int) { return Part{{0, width}, {0, depth}}; });
  }
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

template <class P, int... i>
inline P zip_low(P a, P b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i % 2 * n + i / 2)...);
}
template <class P, int... i>
inline P zip_high(P a, P b, std::integer_sequence<int, i...>) {
  constexpr int n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i % 2 * n + n / 2 + i / 2)...);
}

template <class T>
using Register = typename VectorOf<T, register_bytes>::type;
template <class T>
inline constexpr int register_width = register_bytes / static_cast<int>(sizeof(T));

/// The square in so many registers. Each round interleaves the rows of its halves, which moves one bit of the
/// row's number to the column's; after as many rounds as they have bits they have changed places.
template <class T>
inline void transpose_registers(Register<T> (&row)[register_width<T>]) {
  constexpr int width = register_width<T>;
  using Lanes = std::make_integer_sequence<int, width>;
  Register<T> next[width];
#pragma GCC unroll 4
  for (int round = 1; round < width; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width / 2; ++i) {
      next[2 * i] = zip_low(row[i], row[i + width / 2], Lanes{});
      next[2 * i + 1] = zip_high(row[i], row[i + width / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) row[i] = next[i];
  }
}

/// A square of a register's width: of numbers that are multiplied by a factor, or of words.
template <class T, class... Factor>
inline void transpose_square(const T* __restrict tile, std::int64_t ld, T* __restrict transposed,
                             std::int64_t transposed_ld, Factor... factor) {
  constexpr int width = register_width<T>;
  Register<T> row[width];
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i)
    row[i] = (*reinterpret_cast<const Register<T>*>(tile + i * ld) * ... * factor);
  transpose_registers<T>(row);
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i) *reinterpret_cast<Register<T>*>(transposed + i * transposed_ld) = row[i];
}

/// transposed[j][i] = factor * tile[i][j] for all i < rows, j < cols; rows are a multiple of column_quantum.
template <class T>
inline void transpose(const T* __restrict tile, std::int64_t ld, int rows, int cols, T factor,
                      T* __restrict transposed, std::int64_t transposed_ld) {
  constexpr int width = register_width<T>;
  int j = 0;
  for (; j + width <= cols; j += width)
    for (int i = 0; i < rows; i += width)
      transpose_square(tile + i * ld + j, ld, transposed + j * transposed_ld + i, transposed_ld, factor);
  for (; j < cols; ++j)
    for (int i = 0; i < rows; ++i) transposed[j * transposed_ld + i] = factor * tile[i * ld + j];
}

}  // namespace ztrain::kernels::tile
