#include "kernels/experts/rows.hpp"

#include "base/error.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Sums of a piece of a row.
template <class T>
struct PieceSums {
  static constexpr std::int64_t most = on_gpu ? pack_of<T> : quantum;
  acc_t<T> at[most] = {};
};

template <class T>
KOKKOS_INLINE_FUNCTION void add_piece(const T* __restrict row, acc_t<T> weight, PieceSums<T>& sums,
                                      std::int64_t n) {
  if constexpr (widens<T>) {
    float wide[quantum];
    widen(row, wide, n);
    for (std::int64_t i = 0; i < n; ++i) sums.at[i] += weight * wide[i];
  } else {
    for (std::int64_t i = 0; i < n; ++i) sums.at[i] += weight * load(row[i]);
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION void round_piece(const PieceSums<T>& sums, T* to, std::int64_t n) {
  if constexpr (widens<T>)
    narrow(sums.at, to, n);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sums.at[i]);
}

/// Sums the rows that slots name, multiplied by weights unless there are none.
template <class T>
struct SumOfRows {
  const T* rows;
  const std::int32_t* slots;
  const acc_t<T>* weights;
  std::int64_t top_k, cols;
  bool accumulate;
  T* y;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t token, const PieceOf<T>& p) const {
    PieceSums<T> sums;
    for (std::int64_t at = token * top_k; at < (token + 1) * top_k; ++at)
      add_piece<T>(p.in(rows + slots[at] * cols), weights != nullptr ? weights[at] : acc_t<T>(1), sums,
                   p.n());
    T* const to = y + token * cols;
    if (accumulate) add_piece<T>(p.in(static_cast<const T*>(to)), acc_t<T>(1), sums, p.n());
    round_piece<T>(sums, p.out(to), p.n());
  }
};

template <class T>
void check_rows(const char* what, Matrix<const T> of_tokens, Matrix<const std::int32_t> slots,
                Matrix<const T> rows) {
  REQUIRE(slots.rows == of_tokens.rows && rows.rows == slots.rows * slots.cols && rows.cols == of_tokens.cols,
          "{}: tokens are [{}, {}] and slots [{}, {}], but rows [{}, {}]", what, of_tokens.rows,
          of_tokens.cols, slots.rows, slots.cols, rows.rows, rows.cols);
}

template <class T>
void sum_rows(Exec& exec, Matrix<const T> rows, Matrix<const std::int32_t> slots, const acc_t<T>* weights,
              Matrix<T> y, bool accumulate) {
  for_row_pieces<pack_of<T>>(
      exec, y.rows, y.cols,
      SumOfRows<T>{rows.data, slots.data, weights, slots.cols, y.cols, accumulate, y.data});
}

}  // namespace

template <class T>
void permute(Exec& exec, Matrix<const T> x, Matrix<const std::int32_t> slots, Matrix<T> rows) {
  check_rows<T>("permute", x, slots, rows);
  for_row_pieces<pack_of<T>>(
      exec, x.rows, x.cols, KOKKOS_LAMBDA(const std::int64_t token, const PieceOf<T> p) {
        for (std::int64_t at = token * slots.cols; at < (token + 1) * slots.cols; ++at)
          p.copy(x.data + token * x.cols, rows.data + slots.data[at] * x.cols);
      });
}

template <class T>
void permute_backward(Exec& exec, Matrix<const T> drows, Matrix<const std::int32_t> slots, Matrix<T> dx,
                      bool accumulate) {
  check_rows<T>("permute backward", dx, slots, drows);
  sum_rows<T>(exec, drows, slots, nullptr, dx, accumulate);
}

template <class T>
void combine(Exec& exec, Matrix<const T> rows, Matrix<const std::int32_t> slots,
             Matrix<const acc_t<T>> weights, Matrix<T> y) {
  check_rows<T>("combine", y, slots, rows);
  REQUIRE(weights.rows == slots.rows && weights.cols == slots.cols,
          "combine: slots are [{}, {}] and weights [{}, {}]", slots.rows, slots.cols, weights.rows,
          weights.cols);
  sum_rows<T>(exec, rows, slots, weights.data, y, false);
}

template <class T>
void gate_tokens(Exec& exec, Matrix<const T> x, Vector<const T> gate, Matrix<T> y) {
  REQUIRE(y.rows == x.rows && y.cols == x.cols && gate.count == x.rows,
          "gate of rows: x is [{}, {}] and y [{}, {}], with {} gates", x.rows, x.cols, y.rows, y.cols,
          gate.count);
  for_row_pieces<pack_of<T>>(
      exec, x.rows, x.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<T> p) {
        PieceSums<T> product;
        add_piece<T>(p.in(x.data + row * x.cols), 1 / (1 + fast_exp(-load(gate.data[row]))), product, p.n());
        round_piece<T>(product, p.out(y.data + row * x.cols), p.n());
      });
}

ZTRAIN_INSTANCES(permute)
ZTRAIN_INSTANCES(permute_backward)
ZTRAIN_INSTANCES(combine)
ZTRAIN_INSTANCES(gate_tokens)

}  // namespace ztrain::kernels
