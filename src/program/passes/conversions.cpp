#include "program/passes/conversions.hpp"

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
