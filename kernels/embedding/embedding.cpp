#include "kernels/embedding/embedding.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {
namespace {

template <class T, class G>
KOKKOS_INLINE_FUNCTION void add_row(const T* __restrict dx, G* __restrict dw, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dw[i] = static_cast<G>(load(dw[i]) + static_cast<acc_t<G>>(load(dx[i])));
  }
}

/// Rows of W with number % of == number of the class; `of` is a power of two.
struct RowClass {
  std::int64_t number, of;
  KOKKOS_INLINE_FUNCTION bool has(std::int64_t token) const { return (token & (of - 1)) == number; }
};

/// Columns that one thread sums.
constexpr std::int64_t column_block = on_gpu ? pack : quantum;

/// A column of dW is summed in token order, so only columns and rows of W can be shared out: each thread
/// takes a block of columns of one class of rows and walks all tokens. On a GPU as many classes as make 64 K
/// threads, of which a warp has one class and 32 packs of a row: reading the tokens, 4 bytes of which serve a
/// warp and come from the first cache, then costs about what the rows' latencies do; each row of dx is read
/// once. One thread of a CPU has one class.
std::int64_t classes_for(std::int64_t blocks) {
  constexpr std::int64_t threads = 65536;
  std::int64_t classes = 1;
  while (on_gpu && classes * blocks < threads) classes *= 2;
  return classes;
}

/// dW += dx in the columns of p, where the token is of the class.
template <class T, class G>
KOKKOS_INLINE_FUNCTION void add_class(Vector<const std::int32_t> tokens, std::int32_t table_row,
                                      RowClass mine, const T* dx, Matrix<G> dW, const RowPiece& p) {
  constexpr std::int64_t batch = 8;
  for (std::int64_t first = 0; first < tokens.count; first += batch) {
    const std::int64_t left = tokens.count - first, n = left < batch ? left : batch;
    Pack<std::int32_t, batch> ids;
    ids.load(tokens.data + first, n);
    unsigned found = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t token = ids.at[i] - table_row;
      found |= static_cast<unsigned>(i < n && token >= 0 && token < dW.rows && mine.has(token)) << i;
    }
    for (std::int64_t row = first; found != 0; ++row, found >>= 1) {
      if (found % 2 == 0) continue;
      add_row<T, G>(p.in(dx + row * dW.cols), p.both(dW.data + (tokens.data[row] - table_row) * dW.cols),
                    p.n());
    }
  }
}

}  // namespace

template <class T>
void embedding_forward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> W, Matrix<T> x,
                       TableRows rows) {
  REQUIRE(x.rows == tokens.count && x.cols == W.cols,
          "embedding: {} tokens and W [{}, {}], but x is [{}, {}]", tokens.count, W.rows, W.cols, x.rows,
          x.cols);
  const std::int64_t first = rows.first, all = rows.all > 0 ? rows.all : W.rows;
  for_wide_rows(
      exec, x.rows, x.cols, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t row) {
        const std::int64_t token = tokens.data[row];
        T* const out = x.data + row * x.cols;
        const bool known = token >= 0 && token < all, here = token >= first && token < first + W.rows;
        const T* const weights = W.data + (here ? token - first : 0) * W.cols;
        lanes.each(x.cols, [&](std::int64_t begin, std::int64_t n) {
          const RowPiece p{begin, n};
          if (here)
            p.copy(weights, out);
          else if (known)
            p.fill_zero(out);
          else
            p.fill_nan(out);
        });
      });
}

template <class T, class G>
void embedding_backward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> dx, Matrix<G> dW,
                        bool accumulate, TableRows rows) {
  REQUIRE(dx.rows == tokens.count && dx.cols == dW.cols,
          "embedding backward: {} tokens and dW [{}, {}], but dx is [{}, {}]", tokens.count, dW.rows, dW.cols,
          dx.rows, dx.cols);
  if (!accumulate) zero(exec, dW.data, dW.rows * dW.cols * static_cast<std::int64_t>(sizeof(G)));
  const auto first = static_cast<std::int32_t>(rows.first);
  const std::int64_t blocks = ceil_div(dW.cols, column_block), classes = classes_for(blocks);
  for_rows(
      exec, blocks * classes, KOKKOS_LAMBDA(const std::int64_t index) {
        const std::int64_t begin = index % blocks * column_block, left = dW.cols - begin;
        const RowClass mine{index / blocks, classes};
        // Of a length that a CPU's compiler knows, where it can be.
        if (!on_gpu && left >= column_block)
          add_class<T, G>(tokens, first, mine, dx.data, dW, RowPiece{begin, column_block});
        else
          add_class<T, G>(tokens, first, mine, dx.data, dW,
                          RowPiece{begin, left < column_block ? left : column_block});
      });
}

ZTRAIN_INSTANCES(embedding_forward)
ZTRAIN_GRADIENT_INSTANCES(embedding_backward)

}  // namespace ztrain::kernels
