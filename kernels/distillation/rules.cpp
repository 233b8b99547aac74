// The ops of a head that learns from a teacher, and of a teacher.

#include "kernels/distillation/record.hpp"
#include "kernels/head/rules_split.hpp"

namespace ztrain::program {
namespace {

Operands distilled_operands(Tape& t, const model::Node& n) {
  return {t.tensors(n.inputs), t.tensors(n.outputs), t.action()};
}

OwnWords own_words_of(const Program& p, const Head& head, const Chunk& chunk) {
  return {chunk_record(head, chunk, false), p.tensor(head.weight).shape[0]};
}

/// Appends the loss of a chunk, and its report.
void emit_distilled(Program& p, const Head& head, double share, const Operands& o, const Chunk& chunk,
                    const Logits& logits) {
  const TensorId words = o.inputs[DistillLoss::words], shares = o.inputs[DistillLoss::shares];
  const TensorId own = add(p, head, "own_taught", DType::f64, {chunk.rows}),
                 terms = add(p, head, "terms", DType::f64, {chunk.rows, distilled_terms});
  emit(p, head, TeacherSums{own_words_of(p, head, chunk)}, {logits.logits, words, shares}, {own});
  const TensorId taught = gathered(p, head, "taught", own);
  const std::vector<TensorId> results = o.outputs;
  std::vector<TensorId> inputs{logits.sums, taught, head.targets, head.token_weights, shares};
  if (chunk.begin > 0) inputs.insert(inputs.end(), results.begin(), results.end());
  emit(p, head, DistillTokens{chunk_record(head, chunk, chunk.begin > 0), share}, std::move(inputs),
       {results[DistillLoss::loss], results[DistillLoss::report], terms});
}

void distill_forward(Program& p, const Operands& operands, const model::Node& node) {
  const Head head = head_of<DistillLoss>(node, operands);
  const double share = record_of<DistillLoss>(node.attributes).share;
  for (const Chunk& chunk : chunks_of(p, head))
    emit_distilled(p, head, share, operands, chunk, emit_logits(p, head, chunk));
}

void distill_adjoint(Tape& t, const model::Node& n) {
  const Operands o = distilled_operands(t, n);
  const Head head = head_of<DistillLoss>(n, o);
  const double share = record_of<DistillLoss>(n.attributes).share;
  Program& p = t.program();
  emit_gradients(
      t, n, head,
      [&](const Chunk& chunk, const Logits& logits) { emit_distilled(p, head, share, o, chunk, logits); },
      [&](const HeadChunk& record, const Logits& logits, std::vector<TensorId> outputs) -> Op& {
        return emit(p, head, DistillLogitsGrad{record, share},
                    {logits.logits, logits.sums, head.h, head.weight, head.targets, head.token_weights,
                     t.scalars(), o.inputs[DistillLoss::words], o.inputs[DistillLoss::shares]},
                    std::move(outputs));
      });
}

void likelihoods_forward(Program& p, const Operands& operands, const model::Node& node) {
  const Head head = head_of<HeadLikelihoods>(node, operands);
  const TensorId words = operands.outputs[HeadLikelihoods::words],
                 logs = operands.outputs[HeadLikelihoods::log_likelihoods];
  const std::int64_t k = p.tensor(words).shape[1];
  for (const Chunk& chunk : chunks_of(p, head)) {
    const Logits logits = emit_logits(p, head, chunk);
    emit_split_loss(p, head, chunk, logits.sums);
    const TensorId own = add(p, head, "own_words", DType::i32, {chunk.rows, k}),
                   own_logs = add(p, head, "own_log_likelihoods", DType::f32, {chunk.rows, k});
    emit(p, head, LikeliestWords{own_words_of(p, head, chunk)}, {logits.logits, logits.sums},
         {own, own_logs});
    std::vector<TensorId> inputs{gathered(p, head, "part_words", own),
                                 gathered(p, head, "part_log_likelihoods", own_logs)};
    if (chunk.begin > 0) inputs.insert(inputs.end(), {words, logs});
    emit(p, head, JoinLikeliest{chunk_record(head, chunk, false)}, std::move(inputs), {words, logs});
  }
}

/// Notes which words the rank has, if ranks share the vocabulary.
template <class Record>
void fit_to_own_words(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(HeadLoss::weight, 0)) return;
  edit<Record>(node.attributes, [&](Record& r) {
    r.first_word = part.own(HeadLoss::weight).begin;
    r.axes = part.axes.bits();
    r.most_words = 0;
    for (const model::Rows& words : part.inputs[HeadLoss::weight].parts)
      r.most_words = std::max(r.most_words, words.end - words.begin);
  });
}

double distilled_grad_flops(const Program& p, const Op& op) {
  const TensorId weight = op.inputs[DistillLogitsGrad::weight];
  const auto rows = static_cast<double>(record_of<DistillLogitsGrad>(op.attributes).rows);
  return (op.outputs.size() > DistillLogitsGrad::dweight ? 4 : 2) * rows * dim(p, weight, 0) *
         dim(p, weight, 1);
}

// The nodes become other ops.
constexpr Way distill_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, by_rows, by_rows}, {partial, partial}, {.says = never_allows}},
    {{replicated, by_rows, replicated, replicated, replicated, replicated},
     {invariant, invariant},
     {.says = never_allows}},
};
constexpr Way likelihoods_ways[] = {
    {{by_rows, replicated, by_rows, by_rows}, {partial, by_rows, by_rows}, {.says = never_allows}},
    {{replicated, by_rows, replicated, replicated},
     {invariant, invariant, invariant},
     {.says = never_allows}},
};

constexpr Way teacher_sums_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
    {{by_columns, replicated, replicated}, {by_rows}},
};
constexpr Way distill_tokens_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows, by_rows}, {partial, partial, by_rows}},
};
constexpr Way distilled_grad_ways[] = {
    {{by_rows, by_rows, by_rows, replicated, by_rows, by_rows, replicated, by_rows, by_rows},
     {by_rows, nothing, nothing, partial}},
    {{by_columns, replicated, replicated, by_rows, replicated, replicated, replicated, replicated,
      replicated},
     {partial, nothing, nothing, by_rows}},
};
constexpr Way likeliest_ways[] = {
    {{by_rows, by_rows}, {by_rows, by_rows}},
    {{by_columns, replicated}, {by_rows, by_rows}},
};
constexpr Way join_ways[] = {
    {{by_rows, by_rows}, {by_rows, by_rows}},
};

}  // namespace

std::span<const OpType> distillation_ops() {
  static constexpr OpType rows[] = {
      {.record = record<DistillLoss>(),
       .adjoint = distill_adjoint,
       .forward_with_gradient = true,
       .ways = distill_ways,
       .fit = fit_to_own_words<DistillLoss>,
       .forward = distill_forward},
      {.record = record<HeadLikelihoods>(),
       .ways = likelihoods_ways,
       .fit = fit_to_own_words<HeadLikelihoods>,
       .forward = likelihoods_forward},
      {.record = record<TeacherSums>(), .ways = teacher_sums_ways},
      {.record = record<DistillTokens>(), .ways = distill_tokens_ways},
      {.record = record<DistillLogitsGrad>(), .flops = distilled_grad_flops, .ways = distilled_grad_ways},
      {.record = record<LikeliestWords>(), .ways = likeliest_ways},
      {.record = record<JoinLikeliest>(), .ways = join_ways},
  };
  return rows;
}

}  // namespace ztrain::program
