#pragma once
// Adds, scales, caps and converts arrays element by element. Sums, multiples and caps are computed in
// acc_t<T> and rounded once. T, A and B are float, bf16, f16 or double.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// c = a + b, n elements each; c may be a or b. Its backward hands the gradient of c to both as it is.
template <class T>
void add(Exec& exec, Vector<const T> a, Vector<const T> b, Vector<T> c);

/// y = factor * x; y may be x.
template <class T>
void scale(Exec& exec, Vector<const T> x, double factor, Vector<T> y);

/// y = cap tanh(x / cap), cap > 0; y may be x.
template <class T>
void soft_cap(Exec& exec, Vector<const T> x, double cap, Vector<T> y);

/// dst = src, n elements each, which do not overlap. Rounds to nearest even; double to bf16 and f16 rounds
/// through float.
template <class A, class B>
void cast(Exec& exec, Vector<const A> src, Vector<B> dst);

}  // namespace ztrain::kernels
