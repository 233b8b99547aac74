#pragma once
// Reports of steps and evaluations of a mixture of experts: its additional losses, and how many tokens each
// expert gets. The biases of the choice follow these counts and may replace a loss that balances experts
// (Wang et al., "Auxiliary-loss-free load balancing", 2024).

#include <vector>

#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Tensors on a rank of the values that a graph reports (model::Graph::reported).
struct ReportedTensors {
  std::vector<TensorId> losses;       ///< fp64 [M, 2] of the head
  PreferenceTensors pairs{};          ///< [M, 9] and [M, slots] of the head, if its loss is on pairs
  TeacherTensors teacher{};           ///< [M, 2], [M, T, k] and [M, T, k] of the head, as far as it has them
  std::vector<TensorId> balance;      ///< fp64 [M, 2] of each balance_loss
  std::vector<TensorId> router_sums;  ///< [M, 2 E + 3] of each layer with experts; none in an evaluation
  std::vector<TensorId> overflows;    ///< fp64 [M, 1] of each layer that may overflow; none in an evaluation
};
ReportedTensors tensors_of(const model::Graph& graph, const std::vector<TensorId>& results);

/// Appends the all-gather of every rank's ExpertsPartial into tensors.experts. Returns the number of tokens
/// of all ranks that chose each expert, by layer, or no_tensor if the rank has no layer with experts. Does
/// nothing if the job has no such tensor.
TensorId append_expert_report(Program& program, const model::ExpertReport& report, const JobTensors& tensors,
                              const ReportedTensors& reported);

/// Appends the sum of the overflows of all ranks, and returns this sum, fp64 [1].
TensorId append_overflows(Program& program, const std::vector<TensorId>& overflows);

/// Appends the op that moves the biases of the choice by `counts`, which append_expert_report returns. The op
/// follows the optimizer steps of the parameters.
void move_biases(Program& program, const Cut& cut, const JobTensors& tensors, double speed, TensorId counts);

}  // namespace ztrain::program
