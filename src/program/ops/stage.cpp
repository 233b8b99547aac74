// What goes between the stages of a pipeline: activations onward, and their gradients back.

#include "program/ops/conversion_records.hpp"
#include "program/ops/op_type.hpp"
#include "program/ops/step_ops.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

Message message_of(const StageMessage& m) {
  return {m.boundary, m.split_over};
}

/// onward: to the next rank of the ring.
void send(Program& p, const model::Node& n, const StageMessage& m, TensorId x, bool onward, Action action) {
  action.kind = ActionKind::send;
  emit_send(p, n.name, x, Axis::pipeline, static_cast<int>(m.peer), action, message_of(m));
  p.ops.back().stream = onward ? Stream::to_next : Stream::to_previous;
}

/// onward: from the previous rank of the ring.
void receive(Program& p, const model::Node& n, const StageMessage& m, TensorId y, bool onward,
             Action action) {
  action.kind = ActionKind::recv;
  emit_recv(p, n.name, y, Axis::pipeline, static_cast<int>(m.peer), action, message_of(m));
  p.ops.back().stream = onward ? Stream::from_previous : Stream::from_next;
}

void from_stage_forward(Program& p, const Operands& o, const model::Node& n) {
  const auto m = record_of<FromStage>(n.attributes);
  receive(p, n, m, o.outputs[FromStage::y], m.onward, o.action);
}

void from_stage_adjoint(Tape& t, const model::Node& n) {
  const auto m = record_of<FromStage>(n.attributes);
  send(t.program(), n, m, t.gradient(n.outputs[FromStage::y]), !m.onward, t.action());
}

void to_stage_forward(Program& p, const Operands& o, const model::Node& n) {
  const auto m = record_of<ToStage>(n.attributes);
  send(p, n, m, o.inputs[ToStage::x], m.onward, o.action);
}

void to_stage_adjoint(Tape& t, const model::Node& n) {
  const auto m = record_of<ToStage>(n.attributes);
  const auto [dx, addend] = t.target_with_addend(n.inputs[ToStage::x]);
  receive(t.program(), n, m, dx, !m.onward, t.action());
  if (addend != no_tensor) t.pass(n.inputs[ToStage::x], addend);
}

}  // namespace

std::span<const OpType> stage_ops() {
  static constexpr OpType rows[] = {
      {.record = record<FromStage>(),
       .adjoint = from_stage_adjoint,
       .forward = from_stage_forward,
       .between_stages = true},
      {.record = record<ToStage>(),
       .adjoint = to_stage_adjoint,
       .forward = to_stage_forward,
       .between_stages = true},
  };
  return rows;
}

}  // namespace ztrain::program
