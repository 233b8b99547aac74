#pragma once
// What the ops of a head have in common that takes tokens chunk by chunk: this rank's logits of a chunk, an
// exchange of three numbers a token if ranks share the vocabulary, and the gradients of the logits.

#include <fmt/format.h>

#include <algorithm>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/record.hpp"
#include "kernels/head/rules.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {

/// Operands that a node's ops share.
struct Head {
  const std::string& name;
  HeadLossSplit split;
  AxisSet axes;
  TensorId h, weight, targets, token_weights;
  TensorId result;  ///< the loss, or the losses of tokens
  Action action;
};

/// Consecutive tokens.
struct Chunk {
  std::int64_t begin, rows;
};

/// Tensors that a chunk leaves for its loss and gradients.
struct Logits {
  TensorId logits, sums;
};

/// Record: HeadLossSplit, or one that is made of it.
template <class Record = HeadLossSplit>
Head head_of(const model::Node& node, const Operands& o) {
  const HeadLossSplit split = record_of<Record>(node.attributes);
  return {node.name,
          split,
          AxisSet::from_bits(static_cast<std::uint32_t>(split.axes)),
          o.inputs[HeadLoss::h],
          o.inputs[HeadLoss::weight],
          o.inputs[HeadLoss::targets],
          o.inputs[HeadLoss::token_weights],
          o.outputs[HeadLoss::loss],
          o.action};
}

/// By the largest part of the vocabulary: chunks must be the same on all ranks.
inline std::vector<Chunk> chunks_of(const Program& p, const Head& head) {
  const Tensor& h = p.tensor(head.h);
  const std::int64_t tokens = h.shape[0];
  const std::int64_t size = head_loss_chunk(tokens, head.split.most_words, h.dtype, p.target);
  std::vector<Chunk> chunks;
  for (std::int64_t begin = 0; begin < tokens; begin += size)
    chunks.push_back({begin, std::min(size, tokens - begin)});
  return chunks;
}

inline TensorId add(Program& p, const Head& head, const char* what, DType dtype, Shape shape) {
  return p.add({.name = fmt::format("{}.{}.{}", head.name, what, head.action.micro),
                .dtype = dtype,
                .shape = std::move(shape)});
}

/// accumulate: to an output that chunks have in common.
inline HeadChunk chunk_record(const Head& head, const Chunk& chunk, bool accumulate) {
  return {head.split, chunk.begin, chunk.rows, head.split.first_word, head.split.vocabulary, accumulate};
}
template <class Record>
Op& emit(Program& p, const Head& head, const Record& record, std::vector<TensorId> inputs,
         std::vector<TensorId> outputs) {
  return add_op(p, record, head.name, head.action, std::move(inputs), std::move(outputs));
}

/// Returns what all ranks of the head's axes have of the rows of a tensor, one rank's behind another's; the
/// tensor itself if there is one rank.
inline TensorId gathered(Program& p, const Head& head, const char* what, TensorId own) {
  const int ranks = p.mesh.size(head.axes);
  if (ranks == 1) return own;
  const Tensor& part = p.tensor(own);
  Shape shape = part.shape;
  shape[0] *= ranks;
  const TensorId all = add(p, head, what, part.dtype, std::move(shape));
  emit_all_gather(p, head.name, own, all, head.axes, head.action);
  move_to_exchange(p);
  return all;
}

inline Logits emit_logits(Program& p, const Head& head, const Chunk& chunk) {
  const bool wide = p.tensor(head.h).dtype == DType::f64;
  const std::int64_t stride = head_loss_stride(p.tensor(head.weight).shape[0]);
  const TensorId logits = add(p, head, "logits", wide ? DType::f64 : DType::f32, {chunk.rows, stride});
  const TensorId own = add(p, head, "own_sums", DType::f64, {chunk.rows, logit_sums_width});
  emit(p, head, HeadLogits{chunk_record(head, chunk, false)}, {head.h, head.weight, head.targets},
       {logits, own});
  return {logits, gathered(p, head, "sums", own)};
}

inline void emit_split_loss(Program& p, const Head& head, const Chunk& chunk, TensorId sums) {
  const TensorId nll = add(p, head, "nll", DType::f64, {chunk.rows});
  std::vector<TensorId> inputs{sums, head.targets, head.token_weights};
  if (chunk.begin > 0) inputs.push_back(head.result);
  emit(p, head, HeadSplitLoss{chunk_record(head, chunk, chunk.begin > 0)}, std::move(inputs),
       {head.result, nll});
}

/// Emits the gradients of a head. Of each chunk, emit_result(chunk, logits) appends what else follows from
/// the logits, and emit_gradient(record, logits, outputs) an op with the operands of HeadLogitsGrad.
template <class EmitResult, class EmitGradient>
void emit_gradients(Tape& t, const model::Node& n, const Head& head, const EmitResult& emit_result,
                    const EmitGradient& emit_gradient) {
  Program& p = t.program();
  const model::ValueId weight = n.inputs[HeadLoss::weight];
  const bool weight_grad = t.wants(weight);
  GradientTarget dw = weight_grad ? t.target(weight) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[HeadLoss::h]);
  const Shape w = p.tensor(head.weight).shape;
  const DType type = p.tensor(head.h).dtype, gradient = weight_grad ? p.tensor(dw.tensor).dtype : type;
  for (const Chunk& chunk : chunks_of(p, head)) {
    const Logits logits = emit_logits(p, head, chunk);
    emit_result(chunk, logits);
    const TensorId workspace =
        t.workspace(n.name, head_split_grad_bytes(chunk.rows, w[0], w[1], type, gradient, p.target));
    Op& op = emit_gradient(chunk_record(head, chunk, dw.accumulate), logits,
                           std::vector<TensorId>{dh, workspace, logits.logits});
    if (chunk.begin > 0) op.inputs.push_back(dh);
    if (!weight_grad) continue;
    op.outputs.push_back(dw.tensor);
    if (dw.accumulate) op.inputs.push_back(dw.tensor);
    dw.accumulate = true;
  }
  if (addend != no_tensor) t.pass(n.inputs[HeadLoss::h], addend);
}

}  // namespace ztrain::program
