#pragma once
// The few scalars of a step: partial sums put together, then the loss, the gradient norm and the clip factor.

#include <span>

#include "kernel_interface/exact_sum.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

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
/// finite. scalars: on the device; the members that the host writes are read only.
void finish_step(Exec& exec, Vector<const StepPartial> partials, StepScalars* scalars);

}  // namespace ztrain::kernels
