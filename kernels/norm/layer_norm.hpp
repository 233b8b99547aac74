#pragma once
// Layer normalisation: Ba, Kiros and Hinton, "Layer normalization" (2016). y = (x - mean) * rstd * weight +
// bias, rstd = 1 / sqrt(variance + eps), the variance being the mean of (x - mean)^2 over the last dim. Sums
// are kept in acc_t<T>; y is rounded once. T in {float, bf16, f16, double}.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// x, y: [T, d]; weight, bias: [d]; mean, rstd: [T], kept for backward. y may not alias x.
template <class T>
void layer_norm_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const T> bias,
                        double eps, Matrix<T> y, Vector<acc_t<T>> mean, Vector<acc_t<T>> rstd);

/// dx, dweight, addend, accumulate, types, workspace and order of sums as of rmsnorm_backward. The bias's
/// gradient is that of a linear layer's bias (kernels/linear/linear.hpp).
template <class T, class G>
void layer_norm_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> mean,
                         Vector<const acc_t<T>> rstd, Matrix<const T> dy, Matrix<const T> addend,
                         Matrix<T> dx, Vector<G> dweight, bool accumulate, void* workspace);

}  // namespace ztrain::kernels
