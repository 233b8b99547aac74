#include "program/passes/offload.hpp"

#include <algorithm>
#include <iterator>

#include "base/shape.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/optimizer.hpp"
#include "program/tiers/stays.hpp"

namespace ztrain::program {
namespace {

void move_to(Program& program, TensorId id, Tier tier) {
  if (id == no_tensor) return;
  program.tensor(id).tier = tier;
  program.tensor(program.storage(id)).tier = tier;
}

void move_to(Program& program, const State& state, Tier tier) {
  move_to(program, state.whole, tier);
  move_to(program, state.slice, tier);
}

/// Which units have the home. All ranks of the tensor axis choose the same ones.
std::vector<bool> units_of(const Layout& layout, const Home& home) {
  std::vector<std::int64_t> sizes;
  for (const FlatUnit& unit : layout.units()) sizes.push_back(unit.largest_elements);
  return spread(sizes, home.fraction);
}

/// What micro-batches add to. What serves one reduction alone is never left by those who use it, and so comes
/// back to the device (Stays).
void move_gradients(Program& program, const Layout& layout, const Home& home) {
  if (home.tier == Tier::device) return;
  const std::vector<bool> chosen = units_of(layout, home);
  for (Tensor& t : program.tensors)
    if (t.category == Category::gradient && !t.persistent && t.unit >= 0 && chosen[at(t.unit)])
      t.tier = home.tier;
}

/// What an op of a block's forward makes, and one of its backward reads or recomputes from.
void move_activations(Program& program, const Home& home) {
  if (home.tier == Tier::device || program.blocks.empty()) return;
  const std::vector<bool> chosen = spread(std::vector<std::int64_t>(program.blocks.size(), 1), home.fraction);
  std::vector<char> made(program.tensors.size(), 0);
  for (const Op& op : program.ops) {
    const bool forward = op.action.kind == ActionKind::forward && op.action.part >= 0;
    for (const TensorId id : op.outputs)
      if (Tensor& t = program.tensor(program.storage(id));
          forward && chosen[at(op.action.part)] && t.category == Category::activation && !t.persistent)
        made[at(program.storage(id))] = 1;
    if (op.action.kind != ActionKind::backward && op.action.kind != ActionKind::recompute) continue;
    for (const TensorId id : op.inputs)
      if (const TensorId s = program.storage(id); made[at(s)]) program.tensor(s).tier = home.tier;
  }
}

/// The states that an optimizer's op works on beside gradient, parameters and scalars.
bool states_are_away(const Program& program, const Op& step) {
  return std::ranges::any_of(step.outputs, [&](TensorId id) {
    const Tensor& t = program.tensor(program.storage(id));
    return (t.category == Category::optimizer || t.category == Category::master) && t.tier != Tier::device;
  });
}

/// A step on the host writes parameters that have a master whole, so that these need not be fetched for it:
/// where no step is taken they are what they were, their masters rounded.
void step_on_host(Op& op) {
  op.tier = Tier::host;
  op.stream = Stream::host;
  auto step = record_of<OptimizerStep>(op.attributes);
  const bool steps_any = std::ranges::any_of(step.pieces, [](const SteppedPiece& p) { return p.count > 0; });
  if (!step.master || !steps_any) return;  // a part that is only padding is not written
  step.whole = true;
  op.attributes = attributes_of(step);
  if (step.ahead == OptimizerStep::settles) return;  // settling may leave the parameters as they are
  std::erase(op.inputs, op.outputs[OptimizerStep::parameter]);
}

void place_steps(Program& program, StepOn where) {
  for (Op& op : program.ops)
    if (op.type == OptimizerStep::op && op.action.part >= 0 && steps_on_host(program, op, where))
      step_on_host(op);
}

bool writes(const Program& program, const Op& op, TensorId storage) {
  return std::ranges::any_of(op.outputs, [&](TensorId t) { return program.storage(t) == storage; });
}

/// Where the norm of a gradient that is away is made from it. Its own place, where nothing comes in between.
OpId norm_place(const Program& program, OpId norm) {
  const TensorId gradient = program.storage(program.op(norm).inputs[SumSquares::gradient]);
  OpId last = norm - 1;
  while (last >= 0 && !writes(program, program.op(last), gradient)) --last;
  return next_reduction(program, last, norm);
}

/// Moves the norm of each gradient whose home is another tier to its last write, where it is on the device.
void move_norms(Program& program) {
  const auto ops = static_cast<OpId>(program.ops.size());
  std::vector<std::vector<Op>> before(program.ops.size());
  std::vector<char> moved(program.ops.size(), 0);
  for (OpId id = 0; id < ops; ++id) {
    Op& op = program.op(id);
    if (op.type != SumSquares::op || op.action.part < 0) continue;
    if (program.tensor(program.storage(op.inputs[SumSquares::gradient])).tier == Tier::device) continue;
    const OpId place = norm_place(program, id);
    if (place == id) continue;
    moved[at(id)] = 1;
    before[at(place)].push_back(op);
  }
  std::vector<Op> list;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    std::ranges::move(before[i], std::back_inserter(list));
    if (!moved[i]) list.push_back(std::move(program.ops[i]));
  }
  program.ops = std::move(list);
}

}  // namespace

bool steps_on_host(const Program& program, const Op& step, StepOn where) {
  return where == StepOn::host || (where == StepOn::automatic && states_are_away(program, step));
}

bool OffloadOptions::any() const {
  return *this != OffloadOptions{};
}

std::vector<bool> spread(const std::vector<std::int64_t>& sizes, double fraction) {
  std::vector<bool> chosen;
  double passed = 0, taken = 0;
  for (const std::int64_t size : sizes) {
    const auto own = static_cast<double>(size);
    passed += own;
    chosen.push_back(fraction * passed - taken >= own / 2);
    if (chosen.back()) taken += own;
  }
  return chosen;
}

void give_homes(Program& program, const Cut& cut, const std::vector<UnitState>& units,
                const OffloadOptions& options) {
  const auto each = [&](const Home& home, auto move) {
    if (home.tier == Tier::device) return;
    const std::vector<bool> chosen = units_of(cut.layout, home);
    for (std::size_t u = 0; u < units.size(); ++u)
      if (chosen[u]) move(units[u], u, home.tier);
  };
  each(options.parameters, [&](const UnitState& s, std::size_t u, Tier tier) {
    if (cut.units[u].kept_whole) return;
    move_to(program, s.parameters, tier);
    move_to(program, s.computed, tier);
  });
  each(options.master, [&](const UnitState& s, std::size_t, Tier tier) {
    if (s.separate_master) move_to(program, s.master, tier);
  });
  each(options.optimizer, [&](const UnitState& s, std::size_t, Tier tier) {
    for (const State& state : s.optimizer) move_to(program, state, tier);
  });
}

void offload(Program& program, const Layout& layout, const OffloadOptions& options) {
  if (!options.any()) return;
  move_gradients(program, layout, options.gradients);
  move_activations(program, options.activations);
  place_steps(program, options.step);
  move_norms(program);
  insert_copies(program);
}

}  // namespace ztrain::program
