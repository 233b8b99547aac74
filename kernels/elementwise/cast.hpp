#pragma once
// Conversion between float types, rounding to nearest even. Element-wise: independent of the slice. double to
// bf16 and f16 rounds through float.

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// dst = src, n elements each; no overlap. A, B in {float, bf16, f16, double}.
template <class A, class B>
void cast(Exec& exec, Vector<const A> src, Vector<B> dst);

}  // namespace ztrain::kernels
