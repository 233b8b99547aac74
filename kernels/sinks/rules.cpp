#include "kernels/sinks/rules.hpp"

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/sinks/record.hpp"

namespace ztrain::program {

void fit_sinks(Attention& attention, const PartOfNode& part) {
  const std::size_t sinks = attention.sinks();
  if (part.inputs.size() <= sinks || !part.is_split(Attention::q, 1)) return;
  const PartOfNode::Operand &q = part.inputs[Attention::q], &own = part.inputs[sinks];
  if (part.is_split(sinks, 0))
    attention.first_sink = attention.first_sink * own.shape[0] / own.whole[0];
  else
    attention.first_sink += part.own(Attention::q).begin * attention.heads / q.whole[1];
}

void emit_sinks(Program& program, const Operands& operands, const model::Node& node,
                const Attention& attention) {
  if (!has_sinks(node, attention)) return;
  const TensorId o = operands.outputs[Attention::o], lse = operands.outputs[Attention::lse];
  add_op(program, AttentionSinks{attention.first_sink}, node.name, operands.action,
         {o, lse, operands.inputs[attention.sinks()]}, {o, lse});
}

void sinks_adjoint(Tape& t, const model::Node& n, const Attention& attention) {
  if (!has_sinks(n, attention) || !t.wants(n.inputs[attention.sinks()])) return;
  const model::ValueId sinks = n.inputs[attention.sinks()];
  const TensorId lse = t.tensor(n.outputs[Attention::lse]);
  const Shape& rows = t.info(lse).shape;
  const TensorId workspace = t.workspace(n.name, sinks_backward_workspace_bytes(rows[0], rows[1]));
  const GradientTarget target = t.target(sinks);
  t.emit(AttentionSinksGrad{attention.first_sink, target.accumulate}, n.name,
         {t.gradient(n.outputs[Attention::o]), t.tensor(n.outputs[Attention::o]), lse, t.tensor(sinks)},
         {target.tensor, workspace});
  t.reads(target);
}

namespace {

// Sinks are cut with their heads over `tensor`; ranks that share a sequence have them all.
constexpr Way sinks_ways[] = {
    {{by_rows, by_rows, replicated}, {by_rows, by_rows}},
    {{by_columns, by_columns, by_rows}, {by_columns, by_columns}},
    {{by_columns, by_columns, replicated}, {by_columns, by_columns}},
};

constexpr Way sinks_grad_ways[] = {
    {{by_rows, by_rows, by_rows, replicated}, {partial}},
    {{by_columns, by_columns, by_columns, by_rows}, {by_rows}},
    {{by_columns, by_columns, by_columns, replicated}, {partial}},
    {{partial, replicated, replicated, replicated}, {partial}},
};

}  // namespace

std::span<const OpType> sinks_ops() {
  static constexpr OpType rows[] = {
      {.record = record<AttentionSinks>(), .ways = sinks_ways},
      {.record = record<AttentionSinksGrad>(), .for_weights = true, .ways = sinks_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
