#include "program/experts/expert_report.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernel_interface/experts_partial.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/load/record.hpp"
#include "program/ops/emit.hpp"

namespace ztrain::program {
namespace {

constexpr Action at_end{ActionKind::norm, -1, -1};

/// Appends the all-reduce of how many tokens of the step chose each expert, by layer of this rank's stages.
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
  if (graph.pairs.report >= 0) tensors.pairs = {next[0], next[1]}, next += 2;
  if (graph.teacher.report >= 0) tensors.teacher.report = *next++;
  if (graph.teacher.words >= 0) tensors.teacher.words = *next++;
  if (graph.teacher.log_likelihoods >= 0) tensors.teacher.log_likelihoods = *next++;
  for (std::size_t i = 0; i < graph.experts.losses.size(); ++i) tensors.balance.push_back(*next++);
  if (next == results.end()) return tensors;  // an evaluation has no more
  const auto overflows = next + std::ssize(graph.experts.sums);
  tensors.router_sums.assign(next, overflows);
  tensors.overflows.assign(overflows, results.end());
  return tensors;
}

TensorId append_expert_report(Program& program, const model::ExpertReport& report, const JobTensors& tensors,
                              const ReportedTensors& reported) {
  if (tensors.experts == no_tensor) return no_tensor;
  const Coordinate at(program.mesh, program.rank);
  std::vector<TensorId> inputs = reported.balance;
  const TensorId counts = reported.router_sums.empty()
                              ? no_tensor
                              : append_counts(program, reported.router_sums, report.sums_over);
  if (counts != no_tensor) inputs.push_back(counts);
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
  return counts;
}

TensorId append_overflows(Program& program, const std::vector<TensorId>& overflows) {
  const auto sum = [&](const char* name) {
    return program.add({.name = name, .dtype = DType::f64, .shape = {1}, .category = Category::scalar});
  };
  const TensorId own = sum("overflows.own"), all = sum("overflows");
  add_op(program, CountOverflows{}, "overflows", at_end, overflows, {own});
  emit_all_reduce(program, "overflows", own, all, AxisSet::all(), at_end);
  return all;
}

void move_biases(Program& program, const Cut& cut, const JobTensors& tensors, double speed, TensorId counts) {
  if (speed == 0 || counts == no_tensor) return;
  const auto found = std::ranges::find_if(cut.units, &model::Unit::constant);
  ASSERT(found != cut.units.end(), "no bias takes part in the choice of experts");
  const auto unit = static_cast<int>(found - cut.units.begin());
  const std::vector<Segment>& layers = cut.layout.unit(unit).segments;
  const std::int64_t stride = layers.size() > 1 ? layers[1].begin : 0;
  ASSERT(std::ssize(layers) == program.tensor(counts).shape[0], "{} layers have biases of the choice, not {}",
         layers.size(), program.tensor(counts).shape[0]);
  for (std::size_t l = 0; l < layers.size(); ++l)
    ASSERT(layers[l].begin == static_cast<std::int64_t>(l) * stride, "biases of layers are not evenly apart");
  const TensorId biases = tensors.units[at(unit)].parameters.whole;
  add_op(program, MoveBiases{speed, stride}, program.units[at(unit)], {ActionKind::optimize, unit, -1},
         {counts, tensors.scalars, biases}, {biases});
}

}  // namespace ztrain::program
