#include "program/passes/split_head.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernel_interface/kernel_workspace.hpp"
#include "program/passes/step_ops.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// What a node's ops have in common.
struct Head {
  const model::Node& node;
  AxisSet axes;
  TensorId h, weight, targets, token_weights, loss;
  Action action;
};

/// Consecutive tokens.
struct Chunk {
  std::int64_t begin, rows;
};

/// What a chunk leaves for its loss and gradients.
struct Logits {
  TensorId logits, sums;
};

Head head_of(const model::Node& node, const Operands& o) {
  return {node,    axes_of(node.attributes), o.inputs[0], o.inputs[1], o.inputs[2], o.inputs[3], o.outputs[0],
          o.action};
}

/// By the largest part of the vocabulary: chunks must be the same on all ranks.
std::vector<Chunk> chunks_of(const Program& p, const Head& head) {
  const Tensor& h = p.tensor(head.h);
  const std::int64_t tokens = h.shape[0];
  const std::int64_t size =
      head_loss_chunk(tokens, head.node.attributes.integer("most_words"), h.dtype, p.target);
  std::vector<Chunk> chunks;
  for (std::int64_t begin = 0; begin < tokens; begin += size)
    chunks.push_back({begin, std::min(size, tokens - begin)});
  return chunks;
}

TensorId add(Program& p, const Head& head, const char* what, DType dtype, Shape shape) {
  Tensor t;
  t.name = fmt::format("{}.{}.{}", head.node.name, what, head.action.micro);
  t.dtype = dtype;
  t.shape = std::move(shape);
  return p.add(std::move(t));
}

Op& emit(Program& p, const Head& head, const char* type, const Chunk& chunk) {
  Op op;
  op.type = type;
  op.name = head.node.name;
  op.attributes = {{"begin", chunk.begin},
                   {"rows", chunk.rows},
                   {"first_word", head.node.attributes.integer("first_word")}};
  op.action = head.action;
  p.ops.push_back(std::move(op));
  return p.ops.back();
}

Logits emit_logits(Program& p, const Head& head, const Chunk& chunk) {
  const bool wide = p.tensor(head.h).dtype == DType::f64;
  const std::int64_t stride = head_loss_stride(p.tensor(head.weight).shape[0]);
  const TensorId logits = add(p, head, "logits", wide ? DType::f64 : DType::f32, {chunk.rows, stride});
  const TensorId own = add(p, head, "own_sums", DType::f64, {chunk.rows, logit_sums_width});
  const TensorId all =
      add(p, head, "sums", DType::f64, {p.mesh.size(head.axes) * chunk.rows, logit_sums_width});
  Op& op = emit(p, head, "head_logits", chunk);
  op.inputs = {head.h, head.weight, head.targets};
  op.outputs = {logits, own};
  emit_all_gather(p, head.node.name, own, all, head.axes, head.action);
  return {logits, all};
}

void emit_loss(Program& p, const Head& head, const Chunk& chunk, TensorId sums) {
  const TensorId nll = add(p, head, "nll", DType::f64, {chunk.rows});
  Op& op = emit(p, head, "head_split_loss", chunk);
  op.inputs = {sums, head.targets, head.token_weights};
  op.outputs = {head.loss, nll};
  op.attributes.set("accumulate", std::int64_t{chunk.begin > 0});
  if (chunk.begin > 0) op.inputs.push_back(head.loss);
}

}  // namespace

void split_head_forward(Program& program, const Operands& operands, const model::Node& node) {
  const Head head = head_of(node, operands);
  for (const Chunk& chunk : chunks_of(program, head))
    emit_loss(program, head, chunk, emit_logits(program, head, chunk).sums);
}

void split_head_adjoint(Tape& t, const model::Node& n) {
  Program& p = t.program();
  Operands operands{{}, {t.tensor(n.outputs[0])}, t.action()};
  for (const auto v : n.inputs) operands.inputs.push_back(t.tensor(v));
  const Head head = head_of(n, operands);
  const bool weight_grad = t.wants(n.inputs[1]);
  GradientTarget dw = weight_grad ? t.target(n.inputs[1]) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[0]);
  const Shape w = p.tensor(head.weight).shape;
  const DType type = p.tensor(head.h).dtype, gradient = weight_grad ? p.tensor(dw.tensor).dtype : type;
  for (const Chunk& chunk : chunks_of(p, head)) {
    const Logits logits = emit_logits(p, head, chunk);
    emit_loss(p, head, chunk, logits.sums);
    const TensorId workspace =
        t.workspace(n.name, head_split_grad_bytes(chunk.rows, w[0], w[1], type, gradient, p.target));
    Op& op = emit(p, head, "head_logits_grad", chunk);
    op.inputs = {logits.logits, logits.sums,        head.h,     head.weight,
                 head.targets,  head.token_weights, t.scalars()};
    op.outputs = {dh, workspace, logits.logits};
    op.attributes.set("accumulate", std::int64_t{dw.accumulate});
    if (chunk.begin > 0) op.inputs.push_back(dh);
    if (!weight_grad) continue;
    op.outputs.push_back(dw.tensor);
    if (dw.accumulate) op.inputs.push_back(dw.tensor);
    dw.accumulate = true;
  }
  if (addend != no_tensor) t.pass(n.inputs[0], addend);
}

}  // namespace ztrain::program
