// The head and its loss where each rank of an axis has some words of the vocabulary (kernels/head/
// head_split.hpp): per chunk of tokens, this rank's logits, an exchange of three numbers a token, and what
// follows from them.

#include "kernels/head/rules_split.hpp"

namespace ztrain::program {
namespace {

void emit_tokens(Program& p, const Head& head, const Chunk& chunk, TensorId sums) {
  std::vector<TensorId> inputs{sums, head.targets, head.token_weights};
  if (chunk.begin > 0) inputs.push_back(head.result);
  emit(p, head, HeadSplitTokens{chunk_record(head, chunk, false)}, std::move(inputs), {head.result});
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
  emit_gradients(
      t, n, head,
      [&](const Chunk& chunk, const Logits& logits) {
        if (emit_result != nullptr) emit_result(p, head, chunk, logits.sums);
      },
      [&](const HeadChunk& record, const Logits& logits, std::vector<TensorId> outputs) -> Op& {
        return emit(
            p, head, HeadLogitsGrad{record},
            {logits.logits, logits.sums, head.h, head.weight, head.targets, head.token_weights, t.scalars()},
            std::move(outputs));
      });
}

void split_head_adjoint(Tape& t, const model::Node& n) {
  const Head head = head_of(n, {t.tensors(n.inputs), {t.tensor(n.outputs[0])}, t.action()});
  split_gradients(t, n, head, emit_split_loss);
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
       .forward = split_head_forward<emit_split_loss>},
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
