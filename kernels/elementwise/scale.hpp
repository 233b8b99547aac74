#pragma once
// Multiplication by a constant.

#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// y = factor * x, element by element, rounded once; y may be x. T is float, bf16, f16 or double.
template <class T>
void scale(Exec& exec, Vector<const T> x, double factor, Vector<T> y);

}  // namespace ztrain::kernels
