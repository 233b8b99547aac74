#include "program/passes/expert_report.hpp"

#include "base/shape.hpp"
#include "kernel_interface/experts_partial.hpp"
#include "kernels/load/record.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {
namespace {

constexpr Action at_end{ActionKind::norm, -1, -1};

/// Appends the tokens that chose each expert in the step, of all ranks, by layer of this rank's stages.
TensorId append_counts(Program& program, const std::vector<TensorId>& sums, AxisSet over) {
  const std::int64_t experts = (program.tensor(sums.front()).shape.back() - 3) / 2;
  const auto counts = [&](const char* name) {
    return program.add({.name = name, .dtype = DType::f64, .shape = {std::ssize(sums), experts}});
  };
  const TensorId own = counts("expert_counts.own"), all = counts("expert_counts");
  add_op(program, ExpertCounts{}, "expert_counts", at_end, sums, {own});
  emit_all_reduce(program, "expert_counts", own, all, over, at_end);
  return all;
}

}  // namespace

ReportedTensors tensors_of(const model::Graph& graph, const std::vector<TensorId>& results) {
  ReportedTensors tensors;
  auto next = results.begin();
  if (graph.result >= 0) tensors.losses.push_back(*next++);
  if (graph.experts.losses >= 0) tensors.balance.push_back(*next++);
  tensors.router_sums.assign(next, results.end());
  return tensors;
}

void append_expert_report(Program& program, const model::ExpertReport& report, const JobTensors& tensors,
                          const ReportedTensors& reported) {
  if (tensors.experts == no_tensor) return;
  const Coordinate at(program.mesh, program.rank);
  std::vector<TensorId> inputs = reported.balance;
  if (!reported.router_sums.empty())
    inputs.push_back(append_counts(program, reported.router_sums, report.sums_over));
  const TensorId local = program.add({.name = "experts.local",
                                      .dtype = DType::u8,
                                      .shape = {sizeof(ExpertsPartial)},
                                      .category = Category::scalar});
  const bool first_of_tokens = at[Axis::tensor] == 0 && at.index_in(context_axes) == 0;
  complete(program, add_op(program,
                           ExpertsPartials{std::ssize(reported.balance), first_of_tokens,
                                           first_of_tokens && at.index_in(sequence_axes) == 0},
                           "", at_end, std::move(inputs), {local}));
  if (program.mesh.ranks() > 1)
    emit_all_gather(program, "experts", local, tensors.experts, AxisSet::all(), at_end);
  else
    emit_copy(program, "experts", local, tensors.experts, at_end);
}

}  // namespace ztrain::program
