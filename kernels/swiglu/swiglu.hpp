#pragma once
// The gated activation of Shazeer, "GLU variants improve transformer" (2020): y = silu(gate) * up, element by
// element, silu(g) = g / (1 + exp(-g)). Computed in acc_t<T> and rounded once. T in {float, bf16, f16,
// double}.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// gate, up, y: [T, n]; y aliases neither.
template <class T>
void swiglu_forward(Exec& exec, Columns<const T> gate, Columns<const T> up, Matrix<T> y);

/// dgate = dy * up * silu'(gate), dup = dy * silu(gate); all [T, n]. Either output may be any of the inputs,
/// but not the other output.
template <class T>
void swiglu_backward(Exec& exec, Columns<const T> gate, Columns<const T> up, Matrix<const T> dy,
                     Columns<T> dgate, Columns<T> dup);

}  // namespace ztrain::kernels
