#pragma once
// y = gelu(gate) * up, element by element, where gelu(g) = g / 2 (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3))):
// the approximation by tanh of Hendrycks and Gimpel, "Gaussian error linear units" (2016). Computed in
// acc_t<T> and rounded once. T in {float, bf16, f16, double}.

#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// All of one size; y aliases neither.
template <class T>
void geglu_forward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<T> y);

/// dgate = dy * up * gelu'(gate), dup = dy * gelu(gate).
template <class T>
void geglu_backward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<const T> dy, Vector<T> dgate,
                    Vector<T> dup);

}  // namespace ztrain::kernels
