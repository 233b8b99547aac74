#include "kernels/attention/rules.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/sinks/rules.hpp"
#include "model/attention_span.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void attention_forward(Program& p, const Operands& operands, const model::Node& n) {
  const auto attention = record_of<Attention>(n.attributes);
  std::vector<TensorId> inputs = operands.inputs;
  inputs.resize(attention.sinks());
  add_op(p, without_sinks(attention), n.name, operands.action, std::move(inputs), operands.outputs);
  emit_sinks(p, operands, n, attention);
}

void attention_adjoint(Tape& t, const model::Node& n) {
  const auto attention = record_of<Attention>(n.attributes);
  sinks_adjoint(t, n, attention);
  const std::size_t held = attention.held();
  const std::span values = std::span(n.inputs).first(held);
  std::vector<TensorId> inputs = t.tensors(values);
  inputs.push_back(t.tensor(n.outputs[Attention::o]));
  inputs.push_back(t.tensor(n.outputs[Attention::lse]));
  inputs.push_back(t.gradient(n.outputs[Attention::o]));
  inputs.push_back(t.tensor(n.inputs[held]));
  t.contribute(values, [&](std::vector<TensorId> outputs) {
    const Tensor& q = t.info(inputs[Attention::q]);
    outputs.push_back(t.workspace(
        n.name, attention_backward_bytes(attention_shape(q.shape, attention), q.dtype, t.kernels())));
    t.emit(AttentionGrad{without_sinks(attention)}, n.name, std::move(inputs), std::move(outputs));
  });
}

/// Causal: half of T x T, less what is outside the window. A micro-batch of several sequences does less;
/// `sequence` is set where the caller knows it.
double attention_flops(const Program& p, const Op& op) {
  const Shape& q = p.tensor(op.inputs[Attention::q]).shape;
  const auto attention = record_of<Attention>(op.attributes);
  const std::int64_t sequence = attention.sequence > 0 ? attention.sequence : q[0];
  const double span = model::attention_span(sequence, attention);
  const AttentionShape s = attention_shape(q, attention);
  return 4 * static_cast<double>(q[0]) * span * static_cast<double>(s.heads * s.head_dim);
}
double attention_grad_flops(const Program& p, const Op& op) {
  return 2.5 * attention_flops(p, op);
}
/// Returns the operations over a full cache.
double attention_cached_flops(const Program& p, const Op& op) {
  const auto attention = record_of<AttentionCached>(op.attributes);
  const TensorId q = op.inputs[AttentionCached::query];
  const double capacity =
      dim(p, op.inputs[AttentionCached::k_cache], 0) / static_cast<double>(attention.kv_heads);
  const BlockLayout layout = BlockLayout::of(attention.layout);
  const double keys =
      layout.is_on() ? static_cast<double>(layout.keys_of_row(layout.blocks() - 1)) : capacity;
  return 4 * dim(p, q, 0) * std::min(keys, capacity) * dim(p, q, 1);
}

std::int64_t attention_workspace(const Program& p, const Op& op) {
  const Tensor& q = p.tensor(op.inputs[Attention::q]);
  const AttentionShape shape = attention_shape(q.shape, record_of<Attention>(op.attributes));
  return attention_forward_bytes(shape, q.dtype, p.target);
}

/// Heads, and where their sinks begin.
void fit_attention(model::Node& node, const PartOfNode& part) {
  const auto own = [&](const char* what, std::int64_t all, std::size_t input) {
    const PartOfNode::Operand& operand = part.inputs[input];
    const std::int64_t heads = all * operand.shape[1];
    REQUIRE(heads % operand.whole[1] == 0, "{}: {} {} do not divide into whole ones over {}", node.name, all,
            what, to_string(part.axes));
    return heads / operand.whole[1];
  };
  edit<Attention>(node.attributes, [&](Attention& a) {
    fit_sinks(a, part);
    a.heads = own("heads", a.heads, Attention::q);
    a.kv_heads = own("kv_heads", a.kv_heads, Attention::k);
  });
}

template <class Record>
bool joined(const Attributes& a, AxisSet) {
  return record_of<Record>(a).joined;
}
template <class Record>
bool apart(const Attributes& a, AxisSet) {
  return !record_of<Record>(a).joined;
}

// Attention to keys that are a part of their sequence needs the others too.
constexpr Way attention_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows, replicated},
     {by_rows, by_rows},
     {.of = apart<Attention>, .over = sequence_axes}},
    {{by_columns, by_columns, by_columns, replicated, by_rows},
     {by_columns, by_columns},
     {.of = apart<Attention>}},
    {{by_columns, by_columns, by_columns, replicated, replicated},
     {by_columns, by_columns},
     {.of = apart<Attention>}},
    {{by_rows, by_rows}, {by_rows, by_rows}, {.of = joined<Attention>, .over = sequence_axes}},
    {{by_columns, replicated}, {by_columns, by_columns}, {.of = joined<Attention>}},
};

constexpr Way attention_grad_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows, by_rows, by_rows, by_rows},
     {by_rows},
     {.of = apart<AttentionGrad>, .over = sequence_axes}},
    {{by_columns, by_columns, by_columns, by_columns, by_columns, by_columns, replicated},
     {by_columns},
     {.of = apart<AttentionGrad>}},
    {{replicated, replicated, replicated, replicated, replicated, partial, replicated},
     {partial},
     {.of = apart<AttentionGrad>}},
    {{by_rows, by_rows, by_rows, by_rows, by_rows},
     {by_rows},
     {.of = joined<AttentionGrad>, .over = sequence_axes}},
    {{by_columns, by_columns, by_columns, by_columns, replicated},
     {by_columns},
     {.of = joined<AttentionGrad>}},
    {{replicated, replicated, replicated, partial, replicated}, {partial}, {.of = joined<AttentionGrad>}},
};

}  // namespace

AttentionShape attention_shape(const Shape& q, const Attention& attention) {
  AttentionShape s;
  s.tokens = q.at(0);
  s.heads = attention.heads;
  s.kv_heads = attention.kv_heads;
  s.head_dim = q.at(1) / (attention.joined ? s.heads + 2 * s.kv_heads : s.heads);
  s.row = attention.joined ? q.at(1) : 0;
  s.window = attention.window;
  s.sequence = attention.sequence;
  s.documents = static_cast<std::int32_t>(attention.documents);
  s.deterministic = attention.deterministic;
  s.scale = attention.scale;
  s.soft_cap = attention.soft_cap;
  return s;
}

std::span<const OpType> attention_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Attention>(),
       .adjoint = attention_adjoint,
       .flops = attention_flops,
       .workspace = attention_workspace,
       .ways = attention_ways,
       .fit = fit_attention,
       .forward = attention_forward,
       .emits_itself = true},
      {.record = record<AttentionGrad>(), .flops = attention_grad_flops, .ways = attention_grad_ways},
      {.record = record<CacheAppend>()},
      {.record = record<AttentionCached>(), .flops = attention_cached_flops},
  };
  return rows;
}

}  // namespace ztrain::program
