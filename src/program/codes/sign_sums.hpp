#pragma once
// Gradients of copies of a shard become sums by way of the momentum, which ranks exchange in signs: 1-bit
// Adam (Tang et al., 2021). Behind a sum a gradient is what makes of the momentum what the signs say, so that
// norm, clipping and optimizer know of nothing.

#include <vector>

#include "program/passes/optimizer.hpp"
#include "program/passes/reduce.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Appends, behind the backward, what makes sums of the gradients of units that have copies, as
/// ReduceOptions::sums_signs leaves them. First all ranks learn the tokens of the step and whether every
/// gradient is finite: if one is not, errors stay as they are, and the sums are NaN.
void append_sign_sums(Program& program, const Cut& cut, const JobTensors& tensors,
                      const config::Optimizer& options, std::vector<ReducedGradient>& gradients,
                      const StepTerms& terms);

/// Whether there is a unit of which copies of shards sum up signs.
bool sums_signs(const JobTensors& tensors);

}  // namespace ztrain::program
