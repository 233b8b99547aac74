#pragma once
// The two outer dims of an array change places: what an exchange of columns for tokens sends lies together.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// x: [outer, inner, n], y: [inner, outer, n]; n from the number of elements. T in {float, bf16, f16,
/// double}. Throws Error when sizes do not match.
template <class T>
void swap_blocks(Exec& exec, Vector<const T> x, std::int64_t outer, std::int64_t inner, Vector<T> y);

}  // namespace ztrain::kernels
