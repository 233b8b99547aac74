#include "program/passes/early_steps.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/shape.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/step/record.hpp"
#include "optim/ema.hpp"
#include "program/passes/optimizer.hpp"

namespace ztrain::program {
namespace {

bool names(const Program& program, const std::vector<TensorId>& operands,
           const std::set<TensorId>& storages) {
  return std::ranges::any_of(operands, [&](TensorId t) { return storages.contains(program.storage(t)); });
}

/// Returns the index after the last op before `end` that uses any of the storages, or 0.
OpId after_uses(const Program& program, OpId end, const std::set<TensorId>& storages) {
  OpId id = end;
  for (; id > 0; --id)
    if (const Op& op = program.op(id - 1);
        names(program, op.inputs, storages) || names(program, op.outputs, storages))
      break;
  return id;
}

/// The ops at the end of a step for a unit's gradient, and the storages after whose last use they may run.
struct UnitStep {
  std::vector<Op> ops;
  std::set<TensorId> uses;  ///< its gradient, and its parameters
};

/// Removes the norms and steps from the ops from `begin` on and returns them by unit.
std::vector<UnitStep> take_steps(Program& program, OpId begin, const JobTensors& tensors) {
  std::vector<UnitStep> steps(tensors.units.size());
  std::vector<Op> left;
  UnitStep* stepped = nullptr;  // what follows from its parameters comes next
  for (auto op = program.ops.begin() + begin; op != program.ops.end(); ++op) {
    const bool norm = op->type == SumSquares::op, step = op->action.kind == ActionKind::optimize;
    if (norm || step) {
      UnitStep& of = steps[at(op->action.part)];
      if (norm) of.uses.insert(program.storage(op->inputs[SumSquares::gradient]));
      if (step) stepped = &of;
      of.ops.push_back(std::move(*op));
    } else if (stepped != nullptr && op->communicates()) {
      stepped->ops.push_back(std::move(*op));
    } else {
      left.push_back(std::move(*op));
    }
  }
  for (std::size_t u = 0; u < steps.size(); ++u)
    for (const State* state : {&tensors.units[u].parameters, &tensors.units[u].computed})
      if (!steps[u].ops.empty()) steps[u].uses.insert(program.storage(state->whole));
  program.ops.erase(program.ops.begin() + begin, program.ops.end());
  std::ranges::move(left, std::back_inserter(program.ops));
  return steps;
}

/// Returns the ops that tell all ranks the number of the step's tokens, before its norm.
std::vector<Op> token_counts(Program& program, const EarlyStep& early) {
  std::vector<Op> step = std::move(program.ops);
  program.ops.clear();
  append_partials(program, early.cut, early.tensors, early.losses, {});
  append_finish(program, early.tensors);
  return std::exchange(program.ops, std::move(step));
}

/// Ops to insert before each op of a list, by the index of that op. The last entry goes to the end of the
/// list.
using OpsBefore = std::vector<std::vector<Op>>;

/// Returns insertions that hold only the count of the step's tokens, after the last loss, and the index
/// there.
std::pair<OpsBefore, OpId> with_token_counts(Program& program, const EarlyStep& early) {
  OpsBefore before(program.ops.size() + 1);
  std::set<TensorId> all_losses;
  for (const TensorId loss : early.losses) all_losses.insert(program.storage(loss));
  const OpId counted = after_uses(program, early.begin, all_losses);
  before[at(counted)] = token_counts(program, early);
  return {std::move(before), counted};
}

/// Inserts the ops into the Program's list and removes the list's ops that have no type.
void insert(Program& program, OpsBefore before) {
  std::vector<Op> list;
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::ranges::move(before[i], std::back_inserter(list));
    if (i < program.ops.size() && !program.ops[i].type.empty()) list.push_back(std::move(program.ops[i]));
  }
  program.ops = std::move(list);
}

/// The ops of a unit from which a step ahead of the norm is made; -1: the unit has no such op.
struct HostStep {
  OpId norm = -1, step = -1;
  std::set<TensorId> uses;  ///< its gradient, and its parameters
};

/// Returns the norm and the host's step of each unit. Matrices and averages are not stepped ahead.
std::vector<HostStep> host_steps(const Program& program, const EarlyStep& early, StepOn where) {
  std::vector<HostStep> steps(early.tensors.units.size());
  for (OpId id = early.begin; id < std::ssize(program.ops); ++id) {
    const Op& op = program.op(id);
    const bool norm = op.type == SumSquares::op;
    if ((!norm && op.type != OptimizerStep::op) || early.cut.units[at(op.action.part)].by_matrix) continue;
    if (!norm && record_of<OptimizerStep>(op.attributes).rule == optim::Ema::name) continue;
    HostStep& of = steps[at(op.action.part)];
    if (norm) of.norm = id;
    if (!norm && steps_on_host(program, op, where)) of.step = id;
    of.uses.insert(program.storage(op.inputs[0]));  // the gradient, which both ops read first
    for (const State* state : {&early.tensors.units[at(op.action.part)].parameters,
                               &early.tensors.units[at(op.action.part)].computed})
      of.uses.insert(program.storage(state->whole));
  }
  return steps;
}

/// Returns the index at which a unit steps ahead of the norm, or `begin` if nothing computes after that
/// index.
OpId ahead_place(const Program& program, OpId begin, OpId counted, const std::set<TensorId>& uses) {
  const OpId done = std::max(counted, after_uses(program, begin, uses)),
             next = next_reduction(program, done - 1, begin), place = next < begin ? next : done;
  const auto from = program.ops.begin();
  const bool beside =
      std::any_of(from + place, from + begin, [](const Op& op) { return is_compute(op.action.kind); });
  return beside ? place : begin;
}

/// Turns a step into the op that settles it, and returns the op that takes it ahead of the norm.
Op take_ahead(Program& program, Op& settles) {
  Op takes = settles;
  auto record = record_of<OptimizerStep>(takes.attributes);
  settles.inputs = {takes.inputs[OptimizerStep::gradient], takes.inputs[OptimizerStep::scalars]};
  std::ranges::copy(takes.outputs, std::back_inserter(settles.inputs));
  const std::vector<TensorId> changed(takes.outputs.begin() + (record.master ? 1 : 0), takes.outputs.end());
  for (const TensorId id : changed) {
    const Tensor& t = program.tensor(id);
    const TensorId copy = program.add({.name = "kept." + t.name,
                                       .dtype = t.dtype,
                                       .shape = t.shape,
                                       .category = t.category,
                                       .tier = Tier::host});
    takes.outputs.push_back(copy);
    settles.inputs.push_back(copy);
  }
  record.ahead = OptimizerStep::takes;
  takes.attributes = attributes_of(record);
  record.ahead = OptimizerStep::settles;
  settles.attributes = attributes_of(record);
  return takes;
}

}  // namespace

void step_during_backward(Program& program, const EarlyStep& early) {
  std::vector<UnitStep> steps = take_steps(program, early.begin, early.tensors);
  auto [before, counted] = with_token_counts(program, early);
  for (UnitStep& unit : steps) {
    if (unit.ops.empty()) continue;
    const OpId done = std::max(counted, after_uses(program, early.begin, unit.uses));
    std::ranges::move(unit.ops,
                      std::back_inserter(before[at(next_reduction(program, done - 1, early.begin))]));
  }
  insert(program, std::move(before));
}

void step_ahead_of_norm(Program& program, const EarlyStep& early, StepOn where) {
  const std::vector<HostStep> steps = host_steps(program, early, where);
  auto [before, counted] = with_token_counts(program, early);
  for (const HostStep& unit : steps) {
    if (unit.step < 0 || unit.norm < 0) continue;
    const OpId place = ahead_place(program, early.begin, counted, unit.uses);
    if (place == early.begin) continue;
    before[at(place)].push_back(std::exchange(program.op(unit.norm), Op{}));
    before[at(place)].push_back(take_ahead(program, program.op(unit.step)));
  }
  insert(program, std::move(before));
}

std::int64_t units_ahead(const Program& program) {
  return std::ranges::count_if(program.ops, [](const Op& op) {
    return op.type == OptimizerStep::op &&
           record_of<OptimizerStep>(op.attributes).ahead == OptimizerStep::takes;
  });
}

}  // namespace ztrain::program
