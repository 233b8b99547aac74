#include "program/passes/optimizer.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "config/parameter_groups.hpp"
#include "kernel_interface/exact_sum.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/step/record.hpp"
#include "model/trainable.hpp"
#include "optim/ema.hpp"
#include "optim/muon.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/early_steps.hpp"
#include "program/passes/matrix_step.hpp"

namespace ztrain::program {
namespace {

/// Adds a tensor that holds a struct of kernel_interface, as bytes.
template <class Struct>
TensorId add_struct(Program& program, const std::string& name) {
  return program.add(
      {.name = name, .dtype = DType::u8, .shape = {sizeof(Struct)}, .category = Category::scalar});
}

/// Of the gradient slice what this rank speaks for.
std::vector<Elements> owned_pieces(const Cut& cut, const FlatUnit& unit) {
  const std::int64_t begin = unit.shard_begin(cut.at);
  std::vector<Elements> pieces;
  for (const Piece& p : cut.layout.pieces(unit.unit, cut.at))
    if (owns(cut.at, unit, cut.layout.parameters()[at(p.parameter)]))
      pieces.push_back({p.flat_begin - begin, p.count});
  return pieces;
}

TensorId norm(Program& program, const Cut& cut, int unit, TensorId gradient) {
  const std::string& name = program.units[at(unit)];
  const TensorId out = add_struct<ExactSum>(program, "norm." + name);
  complete(program, add_op(program, SumSquares{owned_pieces(cut, cut.layout.unit(unit))}, name,
                           {ActionKind::norm, unit, -1}, {gradient}, {out}));
  return out;
}

/// Returns the constants of an op that steps a unit by a rule.
OptimizerStep record_of_step(std::string_view rule, const Cut& cut, const UnitState& s,
                             const OptimizerSpec& o, int unit) {
  OptimizerStep record;
  record.rule = rule;
  record.master = s.separate_master;
  record.beta1 = o.options.beta1;
  record.beta2 = o.options.beta2;
  record.eps = o.options.eps;
  record.momentum = o.options.momentum;
  record.nesterov = o.options.nesterov;
  record.freeze_step = o.options.freeze_step;
  record.stochastic = o.stochastic_rounding;
  record.seed = static_cast<std::int64_t>(o.seed);
  add_stepped_pieces(record, cut, s, unit, o);
  return record;
}

/// Returns the constants of the first half of a step of matrices, which writes no parameter.
OptimizerStep first_half_of(OptimizerStep step, std::string_view rule) {
  step.rule = rule;
  step.master = step.stochastic = false;
  return step;
}

/// Returns what the rule itself keeps of a unit: all of its states but the errors of sums and the average.
std::span<const State> own_states(const UnitState& s) {
  const std::size_t others = (s.averaged() ? 1 : 0) + (s.error() >= 0 ? 1 : 0);
  return std::span(s.optimizer).first(s.optimizer.size() - others);
}

/// Returns the parameters that a rank steps, in the type in which it computes with them.
TensorId stepped_parameters(const Cut& cut, const UnitState& s) {
  return cut.strategy.optimizer_sharded ? s.parameters.slice : s.parameters.whole;
}

/// Appends the step of the average of a unit's parameters, which have been stepped.
void average(Program& program, const Cut& cut, const UnitState& s, const OptimizerSpec& o, int unit,
             TensorId scalars) {
  OptimizerStep record = first_half_of(record_of_step(optim::Ema::name, cut, s, o, unit), optim::Ema::name);
  record.momentum = o.options.ema_decay;
  const TensorId weights = s.separate_master ? s.master.whole : stepped_parameters(cut, s);
  const TensorId average = s.optimizer.back().whole;
  add_op(program, record, program.units[at(unit)], {ActionKind::optimize, unit, -1},
         {weights, scalars, average}, {average});
}

void step(Program& program, const Cut& cut, const JobTensors& tensors, const OptimizerSpec& o, int unit,
          TensorId gradient, MatrixSteps& matrices) {
  const UnitState& s = tensors.units[at(unit)];
  if (cut.units[at(unit)].by_matrix) {
    const OptimizerStep second = record_of_step(optim::MuonMove::name, cut, s, o, unit);
    return append_matrix_step(program, matrices, cut, s, unit, gradient, tensors.scalars,
                              first_half_of(second, s.rule), second);
  }
  // What the optimizer writes of the parameters.
  std::vector<TensorId> outputs{stepped_parameters(cut, s)};
  if (s.separate_master) outputs.push_back(s.master.whole);
  for (const State& state : own_states(s)) outputs.push_back(state.whole);
  std::vector<TensorId> inputs{gradient, tensors.scalars};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  add_op(program, record_of_step(s.rule, cut, s, o, unit), program.units[at(unit)],
         {ActionKind::optimize, unit, -1}, std::move(inputs), std::move(outputs));
}

void share(Program& program, const FlatUnit& unit, const State& state) {
  if (state.slice != state.whole)
    emit_all_gather(program, program.units[at(unit.unit)], state.slice, state.whole, unit.shard_axes,
                    {ActionKind::gather, -1, -1});
}

}  // namespace

void append_partials(Program& program, const Cut& cut, const JobTensors& tensors,
                     const std::vector<TensorId>& losses, const std::vector<TensorId>& norms) {
  const TensorId local = add_struct<StepPartial>(program, "partials.local");
  const Action action{ActionKind::norm, -1, -1};
  std::vector<TensorId> inputs = losses;
  inputs.insert(inputs.end(), norms.begin(), norms.end());
  const bool shared = tensors.preference.report != no_tensor;
  const bool counts = cut.at[Axis::tensor] == 0 && (!shared || cut.at.index_in(context_axes) == 0);
  add_op(program, StepPartials{std::ssize(losses), counts, shared}, "", action, std::move(inputs), {local});
  if (cut.at.mesh().ranks() > 1)
    emit_all_gather(program, "partials", local, tensors.partials, AxisSet::all(), action);
  else
    emit_copy(program, "partials", local, tensors.partials, action);
}

OpId next_reduction(const Program& program, OpId last, OpId end) {
  for (OpId id = last + 1; id < end; ++id)
    if (const Action& a = program.op(id).action;
        a.kind == ActionKind::reduce && a.part != program.op(last).action.part)
      return id;
  return end;
}

void append_finish(Program& program, const JobTensors& tensors, TensorId overflows) {
  Op& op = add_op(program, FinishStep{}, "clip scale", {ActionKind::norm, -1, -1},
                  {tensors.partials, tensors.scalars}, {tensors.scalars});
  if (overflows != no_tensor) op.inputs.push_back(overflows);
}

void append_optimizer(Program& program, const Cut& cut, const JobTensors& tensors,
                      const OptimizerSpec& optimizer, const std::vector<ReducedGradient>& gradients,
                      const StepTerms& terms) {
  const std::vector<TensorId>& losses = terms.losses;
  const auto begin = static_cast<OpId>(program.ops.size());
  std::vector<TensorId> norms;
  for (std::size_t u = 0; u < gradients.size(); ++u)
    if (gradients[u].slice != no_tensor)
      norms.push_back(norm(program, cut, static_cast<int>(u), gradients[u].slice));
  append_partials(program, cut, tensors, losses, norms);
  append_finish(program, tensors, terms.overflows);
  MatrixSteps matrices(cut);
  for (std::size_t u = 0; u < gradients.size(); ++u) {
    if (gradients[u].whole == no_tensor) continue;
    const UnitState& state = tensors.units[u];
    step(program, cut, tensors, optimizer, static_cast<int>(u), gradients[u].whole, matrices);
    if (state.averaged()) average(program, cut, state, optimizer, static_cast<int>(u), tensors.scalars);
    if (cut.strategy.optimizer_sharded)
      share(program, cut.layout.unit(static_cast<int>(u)), state.parameters);
  }
  const EarlyStep early{begin, cut, tensors, losses};
  if (optimizer.options.during_backward) step_during_backward(program, early);
  if (terms.ahead) step_ahead_of_norm(program, early, *terms.ahead);
}

void derive_copies(Program& program, const Layout& layout, const JobTensors& tensors) {
  for (const FlatUnit& unit : layout.units()) {
    const UnitState& s = tensors.units[at(unit.unit)];
    const std::string& name = program.units[at(unit.unit)];
    const Action action{ActionKind::load, unit.unit, -1};
    if (s.separate_master) emit_cast(program, name, s.master.slice, s.parameters.slice, action);
    share(program, unit, s.parameters);
    if (s.separate_master) share(program, unit, s.master);
    for (const State& state : s.optimizer) share(program, unit, state);
  }
}

void add_stepped_pieces(OptimizerStep& step, const Cut& cut, const UnitState& state, int unit,
                        const OptimizerSpec& optimizer) {
  const auto group_of = [&](const config::ParameterSettings& rates) {
    for (std::size_t g = 0; g < step.lr_scales.size(); ++g)
      if (step.lr_scales[g] == rates.lr_scale && step.weight_decays[g] == rates.weight_decay)
        return static_cast<std::int64_t>(g);
    step.lr_scales.push_back(rates.lr_scale);
    step.weight_decays.push_back(rates.weight_decay);
    return std::ssize(step.lr_scales) - 1;
  };
  for (const Piece& p : cut.layout.pieces(unit, state.step_begin, state.step_begin + state.step_count)) {
    const ParameterShape& parameter = cut.layout.parameters()[at(p.parameter)];
    const SliceIndex index = slice_index(parameter.shape, parameter.slice, part_of(parameter.slice, cut.at));
    config::ParameterSettings rates = config::settings_of(optimizer.options, parameter.name, parameter.decay);
    if (step.rule == optim::MuonMove::name) {  // the decay of muon does not depend on a matrix's shape
      const double factor = optim::muon_factor(
          optimizer.options.muon_scale, parameter.shape[parameter.shape.size() - 2], parameter.shape.back());
      rates = {rates.lr_scale * factor, rates.weight_decay / factor};
    }
    step.pieces.push_back({p.flat_begin - state.step_begin, p.count, group_of(rates),
                           std::bit_cast<std::int64_t>(hash_text(parameter.name)), p.slice_begin, index.run,
                           index.stride, index.offset});
  }
}

void require_patterns_match(const model::Graph& graph, const OptimizerSpec& optimizer) {
  for (const std::string& pattern : optimizer.options.no_decay)
    model::require_match(graph, "optimizer.no_decay", pattern);
  for (const config::ParameterGroup& group : optimizer.options.groups)
    model::require_match(graph, "optimizer.groups", group.match);
}

config::Optimizer OptimizerSpec::standard() {
  config::Optimizer o;
  o.name = "adamw";
  o.beta1 = 0.9;
  o.beta2 = 0.95;
  o.eps = 1e-8;
  o.weight_decay = 0.1;
  o.momentum = 0.9;
  o.muon_scale = "rms";
  return o;
}

}  // namespace ztrain::program
