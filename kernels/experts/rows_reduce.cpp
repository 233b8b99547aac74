// Gradients of rows that are products over their width.

#include "base/error.hpp"
#include "kernels/experts/rows.hpp"
#include "kernels/experts/scaled_rows.hpp"

namespace ztrain::kernels {

template <class T>
void combine_backward(Exec& exec, Matrix<const T> dy, Matrix<const T> rows, Matrix<const std::int32_t> slots,
                      Matrix<const acc_t<T>> weights, Matrix<T> drows, Matrix<acc_t<T>> dweights) {
  const std::int64_t choices = slots.rows * slots.cols;
  REQUIRE(slots.rows == dy.rows && rows.rows == choices && rows.cols == dy.cols && drows.rows == choices &&
              drows.cols == dy.cols && weights.rows * weights.cols == choices &&
              dweights.rows * dweights.cols == choices,
          "combine backward: dy is [{}, {}] and slots [{}, {}], but rows [{}, {}], drows [{}, {}], weights "
          "[{}, {}], dweights [{}, {}]",
          dy.rows, dy.cols, slots.rows, slots.cols, rows.rows, rows.cols, drows.rows, drows.cols,
          weights.rows, weights.cols, dweights.rows, dweights.cols);
  for_warp_rows(exec, choices,
                CombineGradRow<T>{dy.data, rows.data, slots.data, weights.data, slots.cols, dy.cols,
                                  drows.data, dweights.data});
}

template <class T>
void gate_tokens_backward(Exec& exec, Matrix<const T> dy, Matrix<const T> x, Vector<const T> gate,
                          Matrix<T> dx, Vector<T> dgate) {
  REQUIRE(x.rows == dy.rows && x.cols == dy.cols && dx.rows == dy.rows && dx.cols == dy.cols &&
              gate.count == dy.rows && dgate.count == dy.rows,
          "gate of rows backward: dy is [{}, {}], x [{}, {}] and dx [{}, {}], with {} gates and {} gradients",
          dy.rows, dy.cols, x.rows, x.cols, dx.rows, dx.cols, gate.count, dgate.count);
  for_warp_rows(exec, dy.rows, GateRowsGradRow<T>{dy.data, x.data, gate.data, dy.cols, dx.data, dgate.data});
}

ZTRAIN_INSTANCES(combine_backward)
ZTRAIN_INSTANCES(gate_tokens_backward)

}  // namespace ztrain::kernels
