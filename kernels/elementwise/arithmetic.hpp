#pragma once
// Element-wise sums and multiples, computed in acc_t<T> and rounded once. T in {float, bf16, f16, double}.

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

}  // namespace ztrain::kernels
