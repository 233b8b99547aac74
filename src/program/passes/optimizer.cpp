#include "program/passes/optimizer.hpp"

#include "kernel_interface/step_partial.hpp"
#include "program/ops/op_type.hpp"
#include "program/ops/step_ops.hpp"
#include "program/ops/step_records.hpp"
#include "program/passes/parameter_rates.hpp"

namespace ztrain::program {
namespace {

/// A struct of base/, as bytes.
template <class Struct>
TensorId add_struct(Program& program, const std::string& name) {
  Tensor t;
  t.name = name;
  t.dtype = DType::u8;
  t.shape = {sizeof(Struct)};
  t.category = Category::scalar;
  return program.add(std::move(t));
}

/// Of the gradient slice what this rank speaks for.
std::vector<Elements> owned_pieces(const Cut& cut, const FlatUnit& unit) {
  const std::int64_t begin = cut.shard_index() * unit.shard_elements;
  std::vector<Elements> pieces;
  for (const Piece& p : cut.layout.pieces(unit.unit, begin, begin + unit.shard_elements))
    if (owns(cut.at, cut.layout.parameters()[static_cast<std::size_t>(p.parameter)]))
      pieces.push_back({p.flat_begin - begin, p.count});
  return pieces;
}

TensorId norm(Program& program, const Cut& cut, int unit, TensorId gradient) {
  const TensorId out = add_struct<ExactSum>(program, "norm." + program.units[static_cast<std::size_t>(unit)]);
  Op& op = add_op(program, SumSquares{owned_pieces(cut, cut.layout.unit(unit))},
                  program.units[static_cast<std::size_t>(unit)]);
  op.inputs = {gradient};
  op.outputs = {out};
  op.action = {ActionKind::norm, unit, -1};
  complete(program, op);
  return out;
}

/// The part of the parameters that the optimizer writes.
TensorId stepped_parameters(const Cut& cut, const UnitState& s) {
  return cut.strategy.optimizer_sharded ? s.parameters.slice : s.parameters.whole;
}

void step(Program& program, const Cut& cut, const JobTensors& tensors, const OptimizerSpec& o, int unit,
          TensorId gradient) {
  const UnitState& s = tensors.units[static_cast<std::size_t>(unit)];
  OptimizerStep record;
  record.rule = o.options.name;
  record.master = s.separate_master;
  record.beta1 = o.options.beta1;
  record.beta2 = o.options.beta2;
  record.eps = o.options.eps;
  record.momentum = o.options.momentum;
  record.nesterov = o.options.nesterov;
  record.stochastic = o.stochastic_rounding;
  record.seed = static_cast<std::int64_t>(o.seed);
  add_stepped_pieces(record, cut, s, unit, o);
  Op& op = add_op(program, record, program.units[static_cast<std::size_t>(unit)]);
  op.outputs = {stepped_parameters(cut, s)};
  if (s.separate_master) op.outputs.push_back(s.master.whole);
  for (const State& state : s.optimizer) op.outputs.push_back(state.whole);
  op.inputs = {gradient, tensors.scalars};
  op.inputs.insert(op.inputs.end(), op.outputs.begin(), op.outputs.end());
  op.action = {ActionKind::optimize, unit, -1};
}

void share(Program& program, const std::string& name, const State& state) {
  if (state.slice != state.whole)
    emit_all_gather(program, name, state.slice, state.whole, Cut::shard_axes(), {ActionKind::gather, -1, -1});
}

}  // namespace

void append_partials(Program& program, const Cut& cut, const JobTensors& tensors,
                     const std::vector<TensorId>& losses, const std::vector<TensorId>& norms) {
  const TensorId local = add_struct<StepPartial>(program, "partials.local");
  Op& op = add_op(program, StepPartials{std::ssize(losses), cut.at[Axis::tensor] == 0}, "");
  op.inputs = losses;
  op.inputs.insert(op.inputs.end(), norms.begin(), norms.end());
  op.outputs = {local};
  op.action = {ActionKind::norm, -1, -1};
  if (cut.at.mesh().ranks() > 1) {
    emit_all_gather(program, "partials", local, tensors.partials, AxisSet::all(), {ActionKind::norm, -1, -1});
  } else {
    emit_copy(program, "partials", local, tensors.partials, {ActionKind::norm, -1, -1});
  }
}

void append_optimizer(Program& program, const Cut& cut, const JobTensors& tensors,
                      const OptimizerSpec& optimizer, const std::vector<ReducedGradient>& gradients,
                      const std::vector<TensorId>& losses) {
  std::vector<TensorId> norms;
  for (std::size_t u = 0; u < gradients.size(); ++u)
    if (gradients[u].slice != no_tensor)
      norms.push_back(norm(program, cut, static_cast<int>(u), gradients[u].slice));
  append_partials(program, cut, tensors, losses, norms);
  Op& finish = add_op(program, FinishStep{}, "clip scale");
  finish.inputs = {tensors.partials, tensors.scalars};
  finish.outputs = {tensors.scalars};
  finish.action = {ActionKind::norm, -1, -1};
  for (std::size_t u = 0; u < gradients.size(); ++u) {
    if (gradients[u].whole == no_tensor) continue;
    step(program, cut, tensors, optimizer, static_cast<int>(u), gradients[u].whole);
    if (cut.strategy.optimizer_sharded) share(program, program.units[u], tensors.units[u].parameters);
  }
}

void derive_copies(Program& program, const JobTensors& tensors) {
  for (std::size_t u = 0; u < tensors.units.size(); ++u) {
    const UnitState& s = tensors.units[u];
    const std::string& name = program.units[u];
    const Action action{ActionKind::load, static_cast<int>(u), -1};
    if (s.separate_master) emit_cast(program, name, s.master.slice, s.parameters.slice, action);
    share(program, name, s.parameters);
    if (s.separate_master) share(program, name, s.master);
    for (const State& state : s.optimizer) share(program, name, state);
  }
}

}  // namespace ztrain::program
