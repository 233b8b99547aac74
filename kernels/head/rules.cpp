// The head and its loss. In training its forward and gradient are one op.

#include <algorithm>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/record.hpp"
#include "kernels/head/rules.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// Emits loss and gradients of a node with these token weights, which need not be its own.
void emit_gradients(Tape& t, const model::Node& n, TensorId token_weights, TensorId loss) {
  const model::ValueId weight = n.inputs[HeadLoss::weight];
  const bool weight_grad = t.wants(weight);
  const GradientTarget dw = weight_grad ? t.target(weight) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[HeadLoss::h]);
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs[HeadLoss::token_weights] = token_weights;
  inputs.push_back(t.scalars());
  const Tensor& h = t.info(inputs[HeadLoss::h]);
  const Tensor& w = t.info(inputs[HeadLoss::weight]);
  // Without the weight's gradient: as if it were of the activations' type, for which no more is needed.
  const TensorId ws = t.workspace(
      n.name, head_loss_workspace_bytes(h.shape[0], w.shape[0], h.shape[1], h.dtype,
                                        weight_grad ? t.info(dw.tensor).dtype : h.dtype, t.kernels()));
  std::vector<TensorId> outputs{loss, dh, ws};
  if (weight_grad) outputs.push_back(dw.tensor);
  t.emit(HeadLossGrad{record_of<LogitCap>(n.attributes), dw.accumulate}, n.name, std::move(inputs),
         std::move(outputs));
  t.reads(dw);
  if (addend != no_tensor) t.pass(n.inputs[HeadLoss::h], addend);
}

void head_loss_adjoint(Tape& t, const model::Node& n) {
  emit_gradients(t, n, t.tensor(n.inputs[HeadLoss::token_weights]), t.tensor(n.outputs[HeadLoss::loss]));
}

void head_tokens_adjoint(Tape& t, const model::Node& n) {
  emit_gradients(t, n, emit_coefficients(t, n), t.temporary(n.name + ".weighted", DType::f64, {2}));
}

std::int64_t head_workspace(const Program& p, const Op& op) {
  const Tensor& h = p.tensor(op.inputs[HeadLoss::h]);
  return head_loss_workspace_bytes(h.shape[0], p.tensor(op.inputs[HeadLoss::weight]).shape[0], h.shape[1],
                                   h.dtype, DType::f32, p.target);
}

double head_flops(const Program& p, const Op& op) {
  const TensorId weight = op.inputs[HeadLoss::weight];
  return 2 * dim(p, op.inputs[HeadLoss::h], 0) * dim(p, weight, 0) * dim(p, weight, 1);
}
double head_grad_flops(const Program& p, const Op& op) {
  return (op.outputs.size() > HeadLossGrad::dweight ? 3 : 2) * head_flops(p, op);
}

/// Over a split vocabulary it is another op (rules_split.cpp).
template <class Split>
void fit_to_words(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(HeadLoss::weight, 0)) return;
  std::int64_t most = 0;
  for (const model::Rows& words : part.inputs[HeadLoss::weight].parts)
    most = std::max(most, words.end - words.begin);
  const auto loss = record_of<LogitCap>(node.attributes);
  const HeadLossSplit split{loss, part.own(HeadLoss::weight).begin, std::int64_t{part.axes.bits()}, most,
                            loss.label_smoothing > 0 ? part.inputs[HeadLoss::weight].whole[0] : 0};
  node.op = Split::op;
  node.attributes = attributes_of(Split{split});
}

// Over a split vocabulary a node becomes another op.
constexpr Way head_loss_ways[] = {
    {{by_rows, replicated, by_rows, by_rows}, {partial}},
    {{replicated, by_rows, replicated, replicated}, {invariant}, {.says = never_allows}},
};

constexpr Way head_tokens_ways[] = {
    {{by_rows, replicated, by_rows, by_rows}, {by_rows}},
    {{replicated, by_rows, replicated, replicated}, {invariant}, {.says = never_allows}},
};

constexpr Way coefficients_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
};

constexpr Way head_loss_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, replicated}, {partial, by_rows, nothing, partial}},
};

}  // namespace

std::span<const OpType> head_ops() {
  static constexpr OpType rows[] = {
      {.record = record<HeadLoss>(),
       .adjoint = head_loss_adjoint,
       .flops = head_flops,
       .workspace = head_workspace,
       .forward_with_gradient = true,
       .ways = head_loss_ways,
       .fit = fit_to_words<HeadLossSplit>},
      {.record = record<HeadTokens>(),
       .adjoint = head_tokens_adjoint,
       .flops = head_flops,
       .workspace = head_workspace,
       .ways = head_tokens_ways,
       .fit = fit_to_words<HeadTokensSplit>,
       .kept = true},
      {.record = record<HeadCoefficients>(), .ways = coefficients_ways},
      {.record = record<HeadLossGrad>(), .flops = head_grad_flops, .ways = head_loss_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
