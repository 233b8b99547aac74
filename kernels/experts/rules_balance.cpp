// Losses that keep routing even.

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/experts/record.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/expand.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

std::int64_t sums_workspace(const Program& p, const Op& op) {
  const Tensor& logits = p.tensor(op.inputs[RouterSums::logits]);
  return router_sums_workspace_bytes(logits.shape[0], logits.shape[1], logits.dtype, p.target);
}

void router_sums_adjoint(Tape& t, const model::Node& n) {
  const model::ValueId logits = n.inputs[RouterSums::logits];
  t.contribute(logits, [&](TensorId dlogits) {
    t.emit(RouterSumsGrad{record_of<RouterSums>(n.attributes).score}, n.name,
           {t.gradient(n.outputs[RouterSums::sums]), t.tensor(logits)}, {dlogits});
  });
}

void balance_loss_adjoint(Tape& t, const model::Node& n) {
  const BalanceConstants constants = record_of<BalanceLoss>(n.attributes);
  const model::ValueId sums = n.inputs[BalanceLoss::sums];
  t.contribute(sums, [&](TensorId dsums) {
    std::vector<TensorId> inputs{t.tensor(sums), t.scalars()};
    if (n.inputs.size() > BalanceLoss::all) inputs.push_back(t.tensor(n.inputs[BalanceLoss::all]));
    t.emit(BalanceLossGrad{constants}, n.name, std::move(inputs),
           {t.tensor(n.outputs[BalanceLoss::losses]), dsums});
  });
}

/// Sums over the micro-batches that ranks have at once, as if they were parts of one.
void share_sums(Program& p, const Operands& o, const model::Node& n) {
  const TensorId sums = o.inputs[ShareSums::x], all = o.outputs[ShareSums::y];
  if (p.mesh.size(sequence_axes) == 1) return emit_copy(p, n.name, sums, all, o.action);
  Tensor term = p.tensor(all);
  term.name = fmt::format("{}.own.{}", n.name, o.action.micro);
  const TensorId own = p.add(std::move(term));
  add_op(p, OwnSums{}, n.name, o.action, {sums}, {own});
  emit_all_reduce(p, n.name, own, all, sequence_axes, o.action);
  move_to_exchange(p);
}

// A loss is of one micro-batch: ranks that have a part of its tokens add up their sums, ranks that have other
// sequences their losses.
constexpr AxisSet of_one_micro_batch = AxisSet::all().without(sequence_axes);

/// The tensor axis cuts the tokens of the residual stream, and not the inputs of the model.
void fit_router_sums(model::Node& node, const PartOfNode& part) {
  if (!part.is_split(RouterSums::logits, 0) || part.is_split(RouterSums::weights, 0)) return;
  auto sums = record_of<RouterSums>(node.attributes);
  sums.first_weight = part.own(RouterSums::logits).begin;
  node.attributes = attributes_of(sums);
}

/// Returns how many tokens of the rank's part stand behind those of the micro-batch: its last ones.
std::int64_t padding_of(const Program& p, std::int64_t own) {
  const TensorId tokens = p.find(input_name("tokens", 0));
  if (p.tokens == 0 || tokens == no_tensor) return 0;
  const Coordinate at(p.mesh, p.rank);
  const std::int64_t part = p.tensor(tokens).shape[0];
  const std::int64_t begin = at.index_in(context_axes) * part + (own < part ? at[Axis::tensor] * own : 0);
  std::int64_t real = 0;
  for (const TokenRun& run : p.token_order.runs(part * p.token_order.ranks(), begin, begin + own))
    real += std::clamp<std::int64_t>(p.tokens - run.token, 0, run.count);
  return own - real;
}

template <class Record, std::size_t logits>
void number_padding(const Program& p, Op& op) {
  edit<Record>(op.attributes,
               [&](Record& r) { r.padding = padding_of(p, p.tensor(op.inputs[logits]).shape[0]); });
}

constexpr Way router_sums_ways[] = {
    {{by_rows, by_rows, by_rows}, {partial}, {.over = of_one_micro_batch}},
    {{by_rows, by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
    {{by_rows, by_rows, replicated}, {partial}, {.over = Axis::tensor}},
};

constexpr Way router_sums_grad_ways[] = {
    {{replicated, by_rows}, {by_rows}, {.over = of_one_micro_batch}},
    {{by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
};

constexpr Way share_sums_ways[] = {
    {{by_rows}, {replicated}, {.over = sequence_axes}},
};

constexpr Way own_sums_ways[] = {
    {{by_rows}, {partial}, {.over = sequence_axes}},
};

constexpr Way balance_loss_ways[] = {
    {{by_rows, replicated}, {partial}, {.over = sequence_axes}},
};

constexpr Way balance_loss_grad_ways[] = {
    {{by_rows, replicated, replicated}, {partial, by_rows}, {.over = sequence_axes}},
};

}  // namespace

std::span<const OpType> experts_balance_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RouterSums>(),
       .adjoint = router_sums_adjoint,
       .workspace = sums_workspace,
       .ways = router_sums_ways,
       .fit = fit_router_sums,
       .number = number_padding<RouterSums, RouterSums::logits>},
      {.record = record<RouterSumsGrad>(),
       .ways = router_sums_grad_ways,
       .number = number_padding<RouterSumsGrad, RouterSumsGrad::logits>},
      {.record = record<ShareSums>(), .ways = share_sums_ways, .forward = share_sums, .kept = true},
      {.record = record<OwnSums>(), .ways = own_sums_ways},
      {.record = record<BalanceLoss>(),
       .adjoint = balance_loss_adjoint,
       .forward_with_gradient = true,
       .ways = balance_loss_ways,
       .invariant_only = true},
      {.record = record<BalanceLossGrad>(), .ways = balance_loss_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
