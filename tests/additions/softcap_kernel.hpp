#pragma once
// The kernels of the op that is added.

#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// y = cap * tanh(x / cap), computed in fp32 (fp64 for fp64) and rounded once. T is float, bf16, f16 or
/// double.
template <class T>
void softcap(Exec& exec, Vector<const T> x, double cap, Vector<T> y);
/// dx = dy * (1 - (y / cap)^2).
template <class T>
void softcap_grad(Exec& exec, Vector<const T> y, Vector<const T> dy, double cap, Vector<T> dx);

}  // namespace ztrain::kernels
