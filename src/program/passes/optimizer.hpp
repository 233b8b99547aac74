#pragma once
// The end of a step: global gradient norm, clip scale, optimizer on each rank's slice, and the copies it
// leads to.

#include "program/jobs/compile.hpp"

namespace ztrain::program {

/// Appends norm, clip and optimizer ops to a train step. losses: fp64 [2] of each micro-batch.
void append_optimizer(Program& program, const Cut& cut, const JobTensors& tensors,
                      const OptimizerSpec& optimizer, const std::vector<ReducedGradient>& gradients,
                      const std::vector<TensorId>& losses);

/// Appends the all-gather of every rank's StepPartial into tensors.partials.
void append_partials(Program& program, const Cut& cut, const JobTensors& tensors,
                     const std::vector<TensorId>& losses, const std::vector<TensorId>& norms);

/// Appends what makes the step's scalars of them: multiplier, loss, norm.
void append_finish(Program& program, const JobTensors& tensors);

/// Where it pays to issue what waits for the op `last`, the end of a reduction: before the next unit's, so
/// that this one goes on beside the backward in between; `end` where none comes before that.
OpId next_reduction(const Program& program, OpId last, OpId end);

/// Appends what derives every copy from this rank's slices of master weights and moments.
void derive_copies(Program& program, const JobTensors& tensors);

}  // namespace ztrain::program
