#pragma once
// Reports of steps and evaluations of a mixture of experts: losses besides the model's, and how tokens are
// spread over experts.

#include <vector>

#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Tensors of what a graph reports (model::Graph::reported), on a rank.
struct ReportedTensors {
  std::vector<TensorId> losses;       ///< fp64 [M, 2] of the head
  std::vector<TensorId> balance;      ///< fp64 [M, 2] of balance_loss
  std::vector<TensorId> router_sums;  ///< [M, 2 E + 3] of each layer with experts; none in an evaluation
};
ReportedTensors tensors_of(const model::Graph& graph, const std::vector<TensorId>& results);

/// Appends the all-gather of every rank's ExpertsPartial into tensors.experts. Does nothing if the job has no
/// such tensor.
void append_expert_report(Program& program, const model::ExpertReport& report, const JobTensors& tensors,
                          const ReportedTensors& reported);

}  // namespace ztrain::program
