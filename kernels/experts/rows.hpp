#pragma once
// Rows of tokens on their way to experts and back. slots: [T, k], a permutation of [0, T k). T in {float,
// bf16, f16, double}; sums in acc_t<T>, rounded once.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// rows[slots[t, j]] = x[t].
template <class T>
void permute(Exec& exec, Matrix<const T> x, Matrix<const std::int32_t> slots, Matrix<T> rows);

/// dx[t] = the sum over j of drows[slots[t, j]], in order (+ dx[t] if accumulate).
template <class T>
void permute_backward(Exec& exec, Matrix<const T> drows, Matrix<const std::int32_t> slots, Matrix<T> dx,
                      bool accumulate);

/// y[t] = the sum over j of weights[t, j] rows[slots[t, j]], in order.
template <class T>
void combine(Exec& exec, Matrix<const T> rows, Matrix<const std::int32_t> slots,
             Matrix<const acc_t<T>> weights, Matrix<T> y);

/// drows[slots[t, j]] = weights[t, j] dy[t]; dweights[t, j] = dy[t] . rows[slots[t, j]].
template <class T>
void combine_backward(Exec& exec, Matrix<const T> dy, Matrix<const T> rows, Matrix<const std::int32_t> slots,
                      Matrix<const acc_t<T>> weights, Matrix<T> drows, Matrix<acc_t<T>> dweights);

/// y[t] = sigmoid(gate[t]) x[t].
template <class T>
void gate_tokens(Exec& exec, Matrix<const T> x, Vector<const T> gate, Matrix<T> y);

template <class T>
void gate_tokens_backward(Exec& exec, Matrix<const T> dy, Matrix<const T> x, Vector<const T> gate,
                          Matrix<T> dx, Vector<T> dgate);

}  // namespace ztrain::kernels
