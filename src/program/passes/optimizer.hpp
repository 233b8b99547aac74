#pragma once
// The end of a step: global gradient norm, clip scale, optimizer on each rank's slice, and the copies it
// leads to.

#include <cstdint>
#include <optional>
#include <vector>

#include "config/deck.hpp"
#include "kernels/optimizer/record.hpp"
#include "program/passes/offload.hpp"
#include "program/passes/reduce.hpp"
#include "program/passes/shard.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

struct OptimizerSpec {
  config::Optimizer options =
      standard();  ///< rule, rates, exclusions and groups; lr and max_norm are the trainer's
  bool stochastic_rounding = false;  ///< of parameters that are stepped without a wider master
  std::uint64_t seed = 0;            ///< of that rounding

  static config::Optimizer standard();
};

/// Inputs that decide whether a step is taken. overflows is the input of FinishStep, or no_tensor.
struct StepTerms {
  std::vector<TensorId> losses;  ///< fp64 [2] of each micro-batch
  TensorId overflows = no_tensor;
  std::optional<StepOn> ahead{};  ///< if set, steps that run on the host are taken ahead of the norm
};

/// Appends norm, clip and optimizer ops to a train step.
void append_optimizer(Program& program, const Cut& cut, const JobTensors& tensors,
                      const OptimizerSpec& optimizer, const std::vector<ReducedGradient>& gradients,
                      const StepTerms& terms);

/// Appends the all-gather of every rank's StepPartial into tensors.partials.
void append_partials(Program& program, const Cut& cut, const JobTensors& tensors,
                     const std::vector<TensorId>& losses, const std::vector<TensorId>& norms);

/// Appends what makes the step's scalars of the partials: multiplier, loss, norm. overflows is the input of
/// FinishStep, or no_tensor.
void append_finish(Program& program, const JobTensors& tensors, TensorId overflows = no_tensor);

/// Where it pays to issue what waits for the op `last`, the end of a reduction: before the next unit's, so
/// that this one goes on beside the backward in between; `end` where none comes before that.
OpId next_reduction(const Program& program, OpId last, OpId end);

/// Appends what derives every copy from this rank's slices of master weights and moments.
void derive_copies(Program& program, const Layout& layout, const JobTensors& tensors);

/// Sets pieces, lr_scales and weight_decays of an op that steps this rank's part of a unit.
void add_stepped_pieces(OptimizerStep& step, const Cut& cut, const UnitState& state, int unit,
                        const OptimizerSpec& optimizer);

/// Throws Error naming a pattern of groups or no_decay that matches no parameter.
void require_patterns_match(const model::Graph& graph, const OptimizerSpec& optimizer);

}  // namespace ztrain::program
