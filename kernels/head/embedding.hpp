#pragma once
// Token embedding: row tokens[t] of W. T in {float, bf16, f16, double}.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// tokens: [T]; W: [V, d]; x: [T, d]. A token outside [0, V) gives a row of NaN, which shows in the loss.
template <class T>
void embedding_forward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> W, Matrix<T> x);

/// tokens: [T]; dx: [T, d]; dW: [V, d] of type G, zeroed first unless accumulate is set. Each row of dW is
/// summed in token order, in acc_t<G> and rounded to G at every addition. Tokens outside [0, V) are skipped.
/// (T, G) in {(float, float), (bf16, float), (bf16, bf16), (f16, float), (f16, f16),
/// (double, double)}.
template <class T, class G>
void embedding_backward(Exec& exec, Vector<const std::int32_t> tokens, Matrix<const T> dx, Matrix<G> dW,
                        bool accumulate);

}  // namespace ztrain::kernels
