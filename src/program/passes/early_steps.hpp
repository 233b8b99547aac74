#pragma once
// Optimizer steps that are taken while backward goes on.

#include <vector>

#include "program/passes/offload.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// A train step whose norms and optimizer steps may be moved to earlier places. Norms, optimizer steps and
/// the copies that follow from them are the ops from `begin` to the end of the list.
struct EarlyStep {
  OpId begin;
  const Cut& cut;
  const JobTensors& tensors;
  const std::vector<TensorId>& losses;  ///< fp64 [2] of each micro-batch
};

/// Moves each unit's norm and step to where its gradient is done and its parameters are used no more. What a
/// step multiplies gradients by is known without their norm, since there is no clip, once the step's tokens
/// are counted: before the first of them the ranks tell each other their losses. The norm is told at the end
/// as ever. (LOMO, Lv et al., 2023.)
void step_during_backward(Program& program, const EarlyStep& early);

/// Moves each step of the host to where step_during_backward would, as if nothing were clipped, and keeps
/// copies of what the step changes in the host's memory. An op after the norm settles the step (see
/// OptimizerStep). If nothing computes after a unit's gradient is done, the unit waits for the norm and needs
/// no copies. New parameters leave the host once they are settled. (SuperOffload, Lian et al., 2025.)
void step_ahead_of_norm(Program& program, const EarlyStep& early, StepOn where);

/// Number of units that a Program steps ahead of the norm.
std::int64_t units_ahead(const Program& program);

}  // namespace ztrain::program
