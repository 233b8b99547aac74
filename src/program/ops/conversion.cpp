// Conversions between placements of a value on the ranks of an axis (program/passes/place.cpp inserts them).
// Each is the adjoint of another: Megatron's f and g and their likes for sequences (Shoeybi et al., 2019;
// Korthikanti et al., 2022).
//
//   copy_to_axis      invariant -> replicated    nothing           backward all-reduce
//   reduce_from_axis  partial   -> invariant     all-reduce        nothing
//   gather_from_axis  split(0)  -> replicated    all-gather        reduce-scatter
//   scatter_to_axis   partial   -> split(0)      reduce-scatter    all-gather
//   tokens_to_columns split(0)  -> split(1)      all-to-all        all-to-all
//   columns_to_tokens split(1)  -> split(0)      all-to-all        all-to-all
//
// The last two are those of DeepSpeed-Ulysses (Jacobs et al., 2023): attention by heads of tokens that are
// split.

#include <fmt/format.h>

#include "program/ops/conversion_records.hpp"
#include "program/ops/op_type.hpp"
#include "program/ops/step_ops.hpp"
#include "program/ops/step_records.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

AxisSet axes_of(const model::Node& node) {
  return AxisSet::from_bits(static_cast<std::uint32_t>(record_of<OverAxes>(node.attributes).axes));
}

/// The gradient of the node's input, by an op that communicates; an earlier contribution is added behind it.
template <class Emit>
void convert_gradient(Tape& t, const model::Node& n, const Emit& emit) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[OverAxes::x]);
  emit(t.gradient(n.outputs[OverAxes::y]), dx);
  if (addend != no_tensor) t.pass(n.inputs[OverAxes::x], addend);
}

/// What one member sends to another lies together: blocks of columns outside of tokens.
TensorId add_blocks(Program& p, const std::string& name, TensorId like, const Action& action) {
  Tensor t = p.tensor(like);
  t.name = fmt::format("{}.blocks.{}", name, action.micro);
  t.base = no_tensor;
  t.offset = 0;
  return p.add(std::move(t));
}

void emit_swap(Program& p, const std::string& name, TensorId x, const SwapBlocks& blocks, TensorId y,
               const Action& action) {
  Op& op = add_op(p, blocks, name);
  op.inputs = {x};
  op.outputs = {y};
  op.action = action;
}

/// x: all columns of this rank's tokens; y: this rank's columns of all tokens.
void emit_to_columns(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  emit_swap(p, n.name, x, {p.tensor(x).shape[0], p.mesh.size(axes)}, blocks, action);
  emit_all_to_all(p, n.name, blocks, y, axes, action);
  move_to_exchange(p);
}

/// The way back.
void emit_to_tokens(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  emit_all_to_all(p, n.name, x, blocks, axes, action);
  move_to_exchange(p);
  emit_swap(p, n.name, blocks, {p.mesh.size(axes), p.tensor(y).shape[0]}, y, action);
}

void reduce_from_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_all_reduce(p, n.name, o.inputs[OverAxes::x], o.outputs[OverAxes::y], axes_of(n), o.action);
  move_to_exchange(p);
}

void gather_from_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_all_gather(p, n.name, o.inputs[OverAxes::x], o.outputs[OverAxes::y], axes_of(n), o.action);
  move_to_exchange(p);
}

void scatter_to_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_reduce_scatter(p, n.name, {o.inputs[OverAxes::x], 0}, o.outputs[OverAxes::y], axes_of(n), false,
                      o.action);
  move_to_exchange(p);
}

void tokens_to_columns_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_to_columns(p, n, o.inputs[OverAxes::x], o.outputs[OverAxes::y], o.action);
}

void columns_to_tokens_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_to_tokens(p, n, o.inputs[OverAxes::x], o.outputs[OverAxes::y], o.action);
}

void tokens_to_columns_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n,
                   [&](TensorId dy, TensorId dx) { emit_to_tokens(t.program(), n, dy, dx, t.action()); });
}

void columns_to_tokens_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n,
                   [&](TensorId dy, TensorId dx) { emit_to_columns(t.program(), n, dy, dx, t.action()); });
}

void copy_to_axis_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n, [&](TensorId dy, TensorId dx) {
    emit_all_reduce(t.program(), n.name, dy, dx, axes_of(n), t.action());
    move_to_exchange(t.program());
  });
}

void gather_from_axis_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n, [&](TensorId dy, TensorId dx) {
    emit_reduce_scatter(t.program(), n.name, {dy, 0}, dx, axes_of(n), false, t.action());
    move_to_exchange(t.program());
  });
}

void scatter_to_axis_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n, [&](TensorId dy, TensorId dx) {
    emit_all_gather(t.program(), n.name, dy, dx, axes_of(n), t.action());
    move_to_exchange(t.program());
  });
}

}  // namespace

std::span<const OpType> conversion_ops() {
  static constexpr OpType rows[] = {
      {.record = record<CopyToAxis>(), .adjoint = copy_to_axis_adjoint, .placings = "R>R 0>0", .alias = true},
      {.record = record<ReduceFromAxis>(),
       .adjoint = pass_gradient,
       .placings = "R>R 0>0",
       .forward = reduce_from_axis_forward},
      {.record = record<GatherFromAxis>(),
       .adjoint = gather_from_axis_adjoint,
       .placings = "R>R 0>0 1>1",
       .forward = gather_from_axis_forward},
      {.record = record<ScatterToAxis>(),
       .adjoint = scatter_to_axis_adjoint,
       .placings = "R>R 0>0",
       .forward = scatter_to_axis_forward},
      {.record = record<TokensToColumns>(),
       .adjoint = tokens_to_columns_adjoint,
       .placings = "R>R 1>1",
       .forward = tokens_to_columns_forward},
      {.record = record<ColumnsToTokens>(),
       .adjoint = columns_to_tokens_adjoint,
       .placings = "R>R 1>1",
       .forward = columns_to_tokens_forward},
      {.record = record<SwapBlocks>()},
      {.record = record<OwnRows>()},
      {.record = record<SumOfRanks>()},
  };
  return rows;
}

}  // namespace ztrain::program
