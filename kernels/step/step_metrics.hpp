#pragma once
// Computes the few scalars of a step: sums of squares, partial sums put together, then the loss, the gradient
// norm and the clip factor.

#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

// The sum of squares of a gradient slice serves the global norm. Each quantum of 256 elements (counted from
// the slice's first element) is summed in double in a fixed order; the sums of the quanta are added exactly.
// What holds, bit for bit:
//  - a quantum's sum depends on its 256 values alone, not on its address or its slice;
//  - an array cut at multiples of 256 gives the bits of one call over the whole array, in whatever order and
//    grouping the pieces' sums are added (as ranks do);
//  - zeros appended to the array change nothing, within a quantum or beyond.

/// out: [1] on the device: the sum of squares, or the old out[0] plus it when add is set; carried. A sum that
/// overflows double in a quantum, or an element that is not finite, makes it not finite. G in {float, bf16,
/// f16, double}. workspace: sum_squares_workspace_bytes(x.count) bytes, aligned to 8.
template <class G>
void sum_squares(Exec& exec, Vector<const G> x, bool add, ExactSum* out, void* workspace);

/// out[0] = sum of the terms, each a scalar on the device, in list order (0 for none). The list is read at
/// launch; out may be none of its terms.
void sum_terms(Exec& exec, std::span<const double* const> terms, double* out);

/// The same of carried sums; the result is carried.
void sum_exact(Exec& exec, std::span<const ExactSum* const> terms, ExactSum* out);

/// partials: one per rank. Losses and weights are added in rank order, the sums of squares exactly. Writes
///   valid_tokens = weight sum, loss = loss sum / valid_tokens,
///   gradient_norm = sqrt(sum of squares) / valid_tokens / loss_scale,
///   clip = max_norm > 0 ? min(1, max_norm / (gradient_norm + 1e-6)) : 1,
///   gradient_multiplier = clip / valid_tokens / loss_scale, found_inf = gradient_norm is not finite.
/// Without valid tokens loss, norm and multiplier are 0, and found_inf tells whether the sum of squares is
/// finite. overflows: null, or a sum that makes found_inf StepScalars::rows_left_out where it is not 0.
/// scalars: on the device; the members that the host writes are read only.
void finish_step(Exec& exec, Vector<const StepPartial> partials, const double* overflows,
                 StepScalars* scalars);

}  // namespace ztrain::kernels
