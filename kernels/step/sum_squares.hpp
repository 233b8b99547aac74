#pragma once
// Sum of squares of a gradient slice, for the global norm.
//
// Each quantum of 256 elements (counted from the slice's first element) is summed in double in a fixed order;
// the sums of the quanta are added exactly. What holds, bit for bit:
//  - a quantum's sum depends on its 256 values alone, not on its address or its slice;
//  - an array cut at multiples of 256 gives the bits of one call over the whole array, in whatever order and
//    grouping the pieces' sums are added (as ranks do);
//  - zeros appended to the array change nothing, within a quantum or beyond.

#include <cstdint>

#include "base/dtype.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

/// out: [1] on the device: the sum of squares, or the old out[0] plus it when add is set; carried. A sum that
/// overflows double in a quantum, or an element that is not finite, makes it not finite. G in {float, bf16,
/// f16, double}. workspace: sum_squares_workspace_bytes(x.count) bytes, aligned to 8.
template <class G>
void sum_squares(Exec& exec, Vector<const G> x, bool add, ExactSum* out, void* workspace);

}  // namespace ztrain::kernels
