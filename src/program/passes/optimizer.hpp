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

/// Appends what derives every copy from this rank's slices of master weights and moments.
void derive_copies(Program& program, const JobTensors& tensors);

}  // namespace ztrain::program
