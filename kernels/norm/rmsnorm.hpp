#pragma once
// Root-mean-square normalisation: Zhang and Sennrich, "Root mean square layer normalization" (NeurIPS 2019).
// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps) over the last dim; the gain is the weight, or
// (one_plus) 1 + the weight. Sums and the normalised value are kept in acc_t<T>; y is rounded once. T in
// {float, bf16, f16, double}.

#include <cstddef>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// x, y: [T, d]; weight: [d]; rstd: [T], kept for backward. y may not alias x.
template <class T>
void rmsnorm_forward(Exec& exec, Matrix<const T> x, Vector<const T> weight, double eps, Matrix<T> y,
                     Vector<acc_t<T>> rstd, bool one_plus = false);

/// r = a + b (rounded to T), then y = rmsnorm(r). a, b, r, y: [T, d]. r may be a or b; y aliases none of
/// them.
template <class T>
void add_rmsnorm_forward(Exec& exec, Matrix<const T> a, Matrix<const T> b, Vector<const T> weight, double eps,
                         Matrix<T> r, Matrix<T> y, Vector<acc_t<T>> rstd, bool one_plus = false);

/// dx [T, d] = gradient through the norm, plus addend [T, d] unless addend.data is null (the gradient that
/// reached x by another path); dx may be dy or addend. dweight [d] of type G: overwritten, or added to when
/// accumulate is set; sums over rows are taken in blocks of rows, and the blocks are added in order.
/// workspace: rmsnorm_backward_workspace_bytes(T, d, dtype_of<T>(), target) bytes, aligned to 64.
/// (T, G) in {(float, float), (bf16, float), (bf16, bf16), (f16, float), (f16, f16),
/// (double, double)}.
template <class T, class G>
void rmsnorm_backward(Exec& exec, Matrix<const T> x, Vector<const T> weight, Vector<const acc_t<T>> rstd,
                      Matrix<const T> dy, Matrix<const T> addend, Matrix<T> dx, Vector<G> dweight,
                      bool accumulate, void* workspace, bool one_plus = false);

}  // namespace ztrain::kernels
