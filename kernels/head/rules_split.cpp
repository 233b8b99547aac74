// The head and its loss where each rank of an axis has some words of the vocabulary (kernels/head/
// head_split.hpp): per chunk of tokens, this rank's logits, an exchange of three numbers a token, and what
// follows from them.

#include <fmt/format.h>

#include <algorithm>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/record.hpp"
#include "kernels/head/rules.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// What a node's ops have in common.
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

/// What a chunk leaves for its loss and gradients.
struct Logits {
  TensorId logits, sums;
};

Head head_of(const model::Node& node, const Operands& o) {
  const auto split = record_of<HeadLossSplit>(node.attributes);
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
std::vector<Chunk> chunks_of(const Program& p, const Head& head) {
  const Tensor& h = p.tensor(head.h);
  const std::int64_t tokens = h.shape[0];
  const std::int64_t size = head_loss_chunk(tokens, head.split.most_words, h.dtype, p.target);
  std::vector<Chunk> chunks;
  for (std::int64_t begin = 0; begin < tokens; begin += size)
    chunks.push_back({begin, std::min(size, tokens - begin)});
  return chunks;
}

TensorId add(Program& p, const Head& head, const char* what, DType dtype, Shape shape) {
  return p.add({.name = fmt::format("{}.{}.{}", head.name, what, head.action.micro),
                .dtype = dtype,
                .shape = std::move(shape)});
}

/// accumulate: to an output that chunks have in common.
template <class Record>
Op& emit(Program& p, const Head& head, const Chunk& chunk, bool accumulate, std::vector<TensorId> inputs,
         std::vector<TensorId> outputs) {
  return add_op(
      p,
      Record{{head.split, chunk.begin, chunk.rows, head.split.first_word, head.split.vocabulary, accumulate}},
      head.name, head.action, std::move(inputs), std::move(outputs));
}

Logits emit_logits(Program& p, const Head& head, const Chunk& chunk) {
  const bool wide = p.tensor(head.h).dtype == DType::f64;
  const std::int64_t stride = head_loss_stride(p.tensor(head.weight).shape[0]);
  const TensorId logits = add(p, head, "logits", wide ? DType::f64 : DType::f32, {chunk.rows, stride});
  const TensorId own = add(p, head, "own_sums", DType::f64, {chunk.rows, logit_sums_width});
  const TensorId all =
      add(p, head, "sums", DType::f64, {p.mesh.size(head.axes) * chunk.rows, logit_sums_width});
  emit<HeadLogits>(p, head, chunk, false, {head.h, head.weight, head.targets}, {logits, own});
  emit_all_gather(p, head.name, own, all, head.axes, head.action);
  move_to_exchange(p);
  return {logits, all};
}

void emit_tokens(Program& p, const Head& head, const Chunk& chunk, TensorId sums) {
  std::vector<TensorId> inputs{sums, head.targets, head.token_weights};
  if (chunk.begin > 0) inputs.push_back(head.result);
  emit<HeadSplitTokens>(p, head, chunk, false, std::move(inputs), {head.result});
}

void emit_loss(Program& p, const Head& head, const Chunk& chunk, TensorId sums) {
  const TensorId nll = add(p, head, "nll", DType::f64, {chunk.rows});
  std::vector<TensorId> inputs{sums, head.targets, head.token_weights};
  if (chunk.begin > 0) inputs.push_back(head.result);
  emit<HeadSplitLoss>(p, head, chunk, chunk.begin > 0, std::move(inputs), {head.result, nll});
}

using EmitResult = void (*)(Program&, const Head&, const Chunk&, TensorId sums);

template <EmitResult emit_result>
void split_head_forward(Program& program, const Operands& operands, const model::Node& node) {
  const Head head = head_of(node, operands);
  for (const Chunk& chunk : chunks_of(program, head))
    emit_result(program, head, chunk, emit_logits(program, head, chunk).sums);
}

/// Emits the gradients of a head, and its result where emit_result is not null.
void split_gradients(Tape& t, const model::Node& n, const Head& head, EmitResult emit_result) {
  Program& p = t.program();
  const model::ValueId weight = n.inputs[HeadLoss::weight];
  const bool weight_grad = t.wants(weight);
  GradientTarget dw = weight_grad ? t.target(weight) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[HeadLoss::h]);
  const Shape w = p.tensor(head.weight).shape;
  const DType type = p.tensor(head.h).dtype, gradient = weight_grad ? p.tensor(dw.tensor).dtype : type;
  for (const Chunk& chunk : chunks_of(p, head)) {
    const Logits logits = emit_logits(p, head, chunk);
    if (emit_result != nullptr) emit_result(p, head, chunk, logits.sums);
    const TensorId workspace =
        t.workspace(n.name, head_split_grad_bytes(chunk.rows, w[0], w[1], type, gradient, p.target));
    Op& op = emit<HeadLogitsGrad>(
        p, head, chunk, dw.accumulate,
        {logits.logits, logits.sums, head.h, head.weight, head.targets, head.token_weights, t.scalars()},
        {dh, workspace, logits.logits});
    if (chunk.begin > 0) op.inputs.push_back(dh);
    if (!weight_grad) continue;
    op.outputs.push_back(dw.tensor);
    if (dw.accumulate) op.inputs.push_back(dw.tensor);
    dw.accumulate = true;
  }
  if (addend != no_tensor) t.pass(n.inputs[HeadLoss::h], addend);
}

void split_head_adjoint(Tape& t, const model::Node& n) {
  const Head head = head_of(n, {t.tensors(n.inputs), {t.tensor(n.outputs[0])}, t.action()});
  split_gradients(t, n, head, emit_loss);
}

void split_tokens_adjoint(Tape& t, const model::Node& n) {
  Head head = head_of(n, {t.tensors(n.inputs), {t.tensor(n.outputs[0])}, t.action()});
  head.token_weights = emit_coefficients(t, n);
  split_gradients(t, n, head, nullptr);
}

/// Logits of the `rows` tokens of a chunk by this rank's words.
std::int64_t logits_workspace(const Program& p, const Op& op) {
  const Tensor& w = p.tensor(op.inputs[HeadLogits::weight]);
  return gemm_workspace_bytes(record_of<HeadLogits>(op.attributes).rows, w.shape[0], w.shape[1], w.dtype,
                              p.tensor(op.outputs[HeadLogits::logits]).dtype, p.target);
}
double product_flops(const Program& p, const Op& op, TensorId weight) {
  const auto rows = static_cast<double>(record_of<HeadChunk>(op.attributes).rows);
  return 2 * rows * dim(p, weight, 0) * dim(p, weight, 1);
}
double logits_flops(const Program& p, const Op& op) {
  return product_flops(p, op, op.inputs[HeadLogits::weight]);
}
double logits_grad_flops(const Program& p, const Op& op) {
  const double product = product_flops(p, op, op.inputs[HeadLogitsGrad::weight]);
  return (op.outputs.size() > HeadLogitsGrad::dweight ? 2 : 1) * product;
}

constexpr Way logits_ways[] = {
    {{by_rows, replicated, by_rows}, {by_rows, by_rows}},
    {{replicated, by_rows, replicated}, {by_columns, by_rows}},
};

constexpr Way split_loss_ways[] = {
    {{by_rows, by_rows, by_rows}, {partial, by_rows}},
};

constexpr Way split_tokens_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
};

constexpr Way logits_grad_ways[] = {
    {{by_rows, by_rows, by_rows, replicated, by_rows, by_rows, replicated},
     {by_rows, nothing, nothing, partial}},
    {{by_columns, replicated, replicated, by_rows, replicated, replicated, replicated},
     {partial, nothing, nothing, by_rows}},
};

}  // namespace

std::span<const OpType> head_split_ops() {
  static constexpr OpType rows[] = {
      {.record = record<HeadLossSplit>(),
       .adjoint = split_head_adjoint,
       .forward_with_gradient = true,
       .forward = split_head_forward<emit_loss>},
      {.record = record<HeadTokensSplit>(),
       .adjoint = split_tokens_adjoint,
       .forward = split_head_forward<emit_tokens>,
       .kept = true},
      {.record = record<HeadLogits>(),
       .flops = logits_flops,
       .workspace = logits_workspace,
       .ways = logits_ways},
      {.record = record<HeadSplitLoss>(), .ways = split_loss_ways},
      {.record = record<HeadSplitTokens>(), .ways = split_tokens_ways},
      {.record = record<HeadLogitsGrad>(), .flops = logits_grad_flops, .ways = logits_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
