// What goes between the stages of a pipeline: activations onward, and their gradients back.

#include "kernels/communication/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// The gradient of a part of a sum is the same on all ranks of the sum.
Message message_of(const StageMessage& m, bool gradient) {
  return {m.boundary, m.split_over, gradient ? 0 : m.partial_over};
}

/// gradient: it goes the other way round the ring.
void send(Program& p, const model::Node& n, TensorId x, bool gradient, Action action) {
  const auto m = record_of<StageMessage>(n.attributes);
  action.kind = ActionKind::send;
  emit_send(p, n.name, x, Axis::pipeline, static_cast<int>(m.peer), action, message_of(m, gradient));
  const bool onward = m.onward != gradient;
  if (m.beside)
    p.ops.back().stream = onward ? Stream::beside_to_next : Stream::beside_to_previous;
  else
    p.ops.back().stream = onward ? Stream::to_next : Stream::to_previous;
}

void receive(Program& p, const model::Node& n, TensorId y, bool gradient, Action action) {
  const auto m = record_of<StageMessage>(n.attributes);
  action.kind = ActionKind::recv;
  emit_recv(p, n.name, y, Axis::pipeline, static_cast<int>(m.peer), action, message_of(m, gradient));
  const bool onward = m.onward != gradient;
  if (m.beside)
    p.ops.back().stream = onward ? Stream::beside_from_previous : Stream::beside_from_next;
  else
    p.ops.back().stream = onward ? Stream::from_previous : Stream::from_next;
}

void from_stage_forward(Program& p, const Operands& o, const model::Node& n) {
  receive(p, n, o.outputs[FromStage::y], false, o.action);
}

void from_stage_adjoint(Tape& t, const model::Node& n) {
  send(t.program(), n, t.gradient(n.outputs[FromStage::y]), true, t.action());
}

void to_stage_forward(Program& p, const Operands& o, const model::Node& n) {
  send(p, n, o.inputs[ToStage::x], false, o.action);
}

void to_stage_adjoint(Tape& t, const model::Node& n) {
  t.contribute(n.inputs[ToStage::x], [&](TensorId dx) { receive(t.program(), n, dx, true, t.action()); });
}

}  // namespace

std::span<const OpType> communication_stage_ops() {
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
