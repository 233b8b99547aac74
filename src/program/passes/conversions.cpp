#include "program/passes/conversions.hpp"

#include <fmt/format.h>

#include "program/passes/step_ops.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// The gradient of the node's input, by an op that communicates; an earlier contribution is added behind it.
template <class Emit>
void convert_gradient(Tape& t, const model::Node& n, const Emit& emit) {
  const auto [dx, addend] = t.target_with_addend(n.inputs[0]);
  emit(t.gradient(n.outputs[0]), dx);
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

/// What one member sends to another lies together: blocks of columns outside of tokens.
TensorId add_blocks(Program& p, const std::string& name, TensorId like, const Action& action) {
  Tensor t = p.tensor(like);
  t.name = fmt::format("{}.blocks.{}", name, action.micro);
  t.base = no_tensor;
  t.offset = 0;
  return p.add(std::move(t));
}

void emit_swap(Program& p, const std::string& name, TensorId x, std::int64_t outer, std::int64_t inner,
               TensorId y, const Action& action) {
  Op op;
  op.type = "swap_blocks";
  op.name = name;
  op.inputs = {x};
  op.outputs = {y};
  op.attributes = {{"outer", outer}, {"inner", inner}};
  op.action = action;
  p.ops.push_back(std::move(op));
}

/// x: all columns of this rank's tokens; y: this rank's columns of all tokens.
void emit_to_columns(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n.attributes);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  emit_swap(p, n.name, x, p.tensor(x).shape[0], p.mesh.size(axes), blocks, action);
  emit_all_to_all(p, n.name, blocks, y, axes, action);
}

/// The way back.
void emit_to_tokens(Program& p, const model::Node& n, TensorId x, TensorId y, const Action& action) {
  const AxisSet axes = axes_of(n.attributes);
  const TensorId blocks = add_blocks(p, n.name, x, action);
  emit_all_to_all(p, n.name, x, blocks, axes, action);
  emit_swap(p, n.name, blocks, p.mesh.size(axes), p.tensor(y).shape[0], y, action);
}

}  // namespace

void reduce_from_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_all_reduce(p, n.name, o.inputs[0], o.outputs[0], axes_of(n.attributes), o.action);
}

void gather_from_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_all_gather(p, n.name, o.inputs[0], o.outputs[0], axes_of(n.attributes), o.action);
}

void scatter_to_axis_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_reduce_scatter(p, n.name, {o.inputs[0], 0}, o.outputs[0], axes_of(n.attributes), false, o.action);
}

void tokens_to_columns_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_to_columns(p, n, o.inputs[0], o.outputs[0], o.action);
}

void columns_to_tokens_forward(Program& p, const Operands& o, const model::Node& n) {
  emit_to_tokens(p, n, o.inputs[0], o.outputs[0], o.action);
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
    emit_all_reduce(t.program(), n.name, dy, dx, axes_of(n.attributes), t.action());
  });
}

void gather_from_axis_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n, [&](TensorId dy, TensorId dx) {
    emit_reduce_scatter(t.program(), n.name, {dy, 0}, dx, axes_of(n.attributes), false, t.action());
  });
}

void scatter_to_axis_adjoint(Tape& t, const model::Node& n) {
  convert_gradient(t, n, [&](TensorId dy, TensorId dx) {
    emit_all_gather(t.program(), n.name, dy, dx, axes_of(n.attributes), t.action());
  });
}

}  // namespace ztrain::program
