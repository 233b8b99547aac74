#include "kernels/reward/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void reward_tokens_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId weight = n.inputs[RewardTokens::weight];
  const bool weight_grad = t.wants(weight);
  const GradientTarget dw = weight_grad ? t.target(weight) : GradientTarget{};
  const auto [dh, addend] = t.target_with_addend(n.inputs[RewardTokens::h]);
  std::vector<TensorId> inputs = t.tensors(n.inputs), outputs{dh};
  inputs.push_back(t.gradient(n.outputs[RewardTokens::nll]));
  inputs.push_back(t.scalars());
  if (weight_grad) outputs.push_back(dw.tensor);
  t.emit(RewardTokensGrad{record_of<RewardTokens>(n.attributes), dw.accumulate}, n.name, std::move(inputs),
         std::move(outputs));
  t.reads(dw);
  if (addend != no_tensor) t.pass(n.inputs[RewardTokens::h], addend);
}

/// Ranks that have some rows of h, and the weights of all tokens, each give the values of their rows.
void fit_to_rows(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(RewardTokens::h, 0) || part.is_split(RewardTokens::token_weights, 0)) return;
  edit<RewardTokens>(node.attributes,
                     [&](RewardTokens& r) { r.first_token = part.own(RewardTokens::h).begin; });
}

constexpr Way reward_ways[] = {
    {{by_rows, replicated, by_rows}, {by_rows}},
    {{by_rows, replicated, replicated}, {partial}, {.over = Axis::tensor}},
};
constexpr Way reward_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, replicated}, {by_rows, partial}},
    {{by_rows, replicated, replicated, replicated, replicated}, {by_rows, partial}, {.over = Axis::tensor}},
};

}  // namespace

std::span<const OpType> reward_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RewardTokens>(),
       .adjoint = reward_tokens_adjoint,
       .ways = reward_ways,
       .fit = fit_to_rows,
       .kept = true},
      {.record = record<RewardTokensGrad>(), .ways = reward_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
