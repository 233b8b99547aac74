#include "program/passes/offload.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "program/ops/step_records.hpp"
#include "program/passes/stays.hpp"

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

/// The unit that an op of the optimizer, or of the norm, is about.
bool of_unit(const Op& op) {
  return (op.type == OptimizerStep::op || op.type == SumSquares::op) && op.action.part >= 0;
}

/// What micro-batches add to. What serves one reduction alone is never left by those who use it, and so comes
/// back to the device (Stays).
void move_gradients(Program& program, const Home& home) {
  if (home.tier == Tier::device) return;
  const std::vector<bool> chosen = spread(program.unit_elements, home.fraction);
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

/// No optimizer steps on the host of a GPU yet: there it fetches what it needs.
void place_steps(Program& program, StepOn where) {
  if (program.target == Target::cuda) where = StepOn::device;
  for (Op& op : program.ops) {
    if (!of_unit(op)) continue;
    const Tier gradient = program.tensor(program.storage(op.inputs[0])).tier;
    if (op.type == SumSquares::op)
      op.tier = gradient == Tier::device || program.target == Target::cuda ? Tier::device : Tier::host;
    else if (where == StepOn::host || (where == StepOn::automatic && states_are_away(program, op)))
      op.tier = Tier::host;
  }
}

}  // namespace

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
  std::vector<std::int64_t> sizes;
  for (const FlatUnit& unit : cut.layout.units()) sizes.push_back(unit.elements());
  const auto each = [&](const Home& home, auto move) {
    if (home.tier == Tier::device) return;
    const std::vector<bool> chosen = spread(sizes, home.fraction);
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

void offload(Program& program, const OffloadOptions& options) {
  if (!options.any()) return;
  move_gradients(program, options.gradients);
  move_activations(program, options.activations);
  place_steps(program, options.step);
  insert_copies(program);
}

}  // namespace ztrain::program
