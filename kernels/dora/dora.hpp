#pragma once
// Layers with adapters and learned magnitudes of their outputs (record.hpp). T in {float, bf16, f16, double}.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// squares[i] = the sum of the squares of row i of weight + scale b a, in acc_t<T>. weight: [n, k]; a: [r,
/// k]; b: [n, r]; squares: [n].
template <class T>
void dora_squares(Exec& exec, Matrix<const T> weight, Matrix<const T> a, Matrix<const T> b, double scale,
                  Vector<acc_t<T>> squares);

/// y[t, i] = x[t, i] magnitude[i] / norm[i] + bias[i], where norm is the root of squares rounded to T, the
/// type that magnitudes start with. A norm of 0 gives bias[i]. x, y: [T, n]; the vectors: [n]; bias.data may
/// be null. y may not alias x.
template <class T>
void dora_scale(Exec& exec, Matrix<const T> x, Vector<const T> magnitude, Vector<const acc_t<T>> squares,
                Vector<const T> bias, Matrix<T> y);

/// dmagnitude[i] = the sum over t of dy[t, i] x[t, i] / norm[i], or += when accumulate; summed in a fixed
/// order. (T, G) as of linear_grad_bias.
template <class T, class G>
void dora_grad_magnitude(Exec& exec, Matrix<const T> dy, Matrix<const T> x, Vector<const acc_t<T>> squares,
                         Vector<G> dmagnitude, bool accumulate);

}  // namespace ztrain::kernels
