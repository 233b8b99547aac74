#pragma once
// Sum of squares of a gradient slice, for the global norm.
//
// Each quantum of 256 elements (counted from the slice's first element) is summed in double in a fixed order,
// giving q0, q1, ...; the quanta are then added left to right: out = ((start + q0) + q1) + ..., start = 0, or
// the old out[0] when add is set. What holds, bit for bit:
//  - a quantum's sum depends on its 256 values alone, not on its address or its slice;
//  - an array cut at multiples of 256 and chained in order (add unset for the first piece, set for the
//  others) gives
//    the bits of one call over the whole array;
//  - zeros appended to the array change nothing, within a quantum or beyond.
// Sums of slices that are taken separately and added afterwards (as ranks do) agree to rounding only.

#include <cstdint>

#include "base/dtype.hpp"
#include "base/view.hpp"
#include "kernels/exec.hpp"

namespace ztrain::kernels {

/// out: [1] on the device. G in {float, bf16, double}. workspace: sum_squares_workspace_bytes(x.count) bytes,
/// aligned to 8.
template <class G>
void sum_squares(Exec& exec, Vector<const G> x, bool add, double* out, void* workspace);

}  // namespace ztrain::kernels
