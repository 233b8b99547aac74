// The router, and rows of tokens on their way to experts and back.

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/linear/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

double router_flops(const Program& p, const Op& op) {
  const TensorId weight = op.inputs[RouterLogits::weight];
  return 2 * dim(p, op.inputs[RouterLogits::x], 0) * dim(p, weight, 0) * dim(p, weight, 1);
}

std::int64_t router_workspace(const Program& p, const Op& op) {
  const Tensor &x = p.tensor(op.inputs[RouterLogits::x]),
               &logits = p.tensor(op.outputs[RouterLogits::logits]);
  return gemm_workspace_bytes(logits.shape[0], logits.shape[1], x.shape[1], x.dtype, logits.dtype, p.target);
}

std::int64_t sort_workspace(const Program& p, const Op& op) {
  return sort_by_expert_workspace_bytes(elements(p.tensor(op.inputs[SortByExpert::experts]).shape),
                                        record_of<SortByExpert>(op.attributes).count, p.target);
}

/// Emits the gradients of a linear layer, whose dy is rounded to the type of x.
void router_adjoint(Tape& t, const model::Node& n) {
  const TensorId x = t.tensor(n.inputs[RouterLogits::x]);
  TensorId dy = t.gradient(n.outputs[RouterLogits::logits]);
  if (t.info(dy).dtype != t.info(x).dtype) {
    const TensorId rounded = t.temporary("grad." + n.name + ".rounded", t.info(x).dtype, t.info(dy).shape);
    t.emit(Cast{}, n.name, {dy}, {rounded});
    dy = rounded;
  }
  const auto emit = [&](std::size_t operand, const auto& record_for, std::vector<TensorId> inputs) {
    if (n.inputs.size() <= operand || !t.wants(n.inputs[operand])) return;
    const GradientTarget to = t.target(n.inputs[operand]);
    t.emit(record_for(LinearGrad{to.accumulate, 1}), n.name, std::move(inputs), {to.tensor});
    t.reads(to);
  };
  emit(RouterLogits::x, [](LinearGrad g) { return LinearGradInput{g}; },
       {dy, t.tensor(n.inputs[RouterLogits::weight])});
  emit(RouterLogits::weight, [](LinearGrad g) { return LinearGradWeight{g}; }, {dy, x});
  emit(RouterLogits::bias, [](LinearGrad g) { return LinearGradBias{g}; }, {dy});
}

void route_adjoint(Tape& t, const model::Node& n) {
  RouteGrad record;
  static_cast<Routing&>(record) = record_of<Route>(n.attributes);
  t.contribute(n.inputs[Route::logits], [&](TensorId dlogits) {
    t.emit(record, n.name,
           {t.gradient(n.outputs[Route::weights]), t.tensor(n.inputs[Route::logits]),
            t.tensor(n.outputs[Route::experts])},
           {dlogits});
  });
}

void permute_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dx = t.target(n.inputs[Permute::x]);
  t.emit(PermuteGrad{dx.accumulate}, n.name,
         {t.gradient(n.outputs[Permute::rows]), t.tensor(n.inputs[Permute::slots])}, {dx.tensor});
  t.reads(dx);
}

/// Emits the gradient op of a node, which reads dy and the node's inputs, for some of these inputs.
template <class Record>
void differentiate(Tape& t, const model::Node& n, std::initializer_list<std::size_t> of) {
  std::vector<model::ValueId> values;
  for (const std::size_t i : of) values.push_back(n.inputs[i]);
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.insert(inputs.begin(), t.gradient(n.outputs[0]));
  t.contribute(values,
               [&](const std::vector<TensorId>& d) { t.emit(Record{}, n.name, std::move(inputs), d); });
}
void combine_adjoint(Tape& t, const model::Node& n) {
  differentiate<CombineGrad>(t, n, {Combine::rows, Combine::weights});
}
void gate_rows_adjoint(Tape& t, const model::Node& n) {
  differentiate<GateRowsGrad>(t, n, {GateRows::x, GateRows::gate});
}

// A rank that has some of the tokens has rows of its own, sorted by expert. Over `tensor` the experts'
// matrices are cut, so that every rank needs the rows of all tokens: experts of all tokens are sorted there.
// If ranks of `tensor` divide the experts, each sorts those of its own tokens.

constexpr Way router_ways[] = {
    {{by_rows, replicated, replicated}, {by_rows}},
};

constexpr Way route_ways[] = {
    {{by_rows, replicated}, {by_rows, by_rows}},
};

constexpr Way route_grad_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
    {{partial, replicated, replicated}, {partial}},
};

bool sorts_own_tokens(const Attributes& a, AxisSet axes) {
  return axes.without(token_axes).empty() || record_of<SortByExpert>(a).own_tokens;
}

constexpr Way sort_ways[] = {
    {{by_rows}, {by_rows, by_rows}, {.of = sorts_own_tokens}},
};

constexpr Way permute_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
};

constexpr Way permute_grad_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{partial, replicated}, {partial}},
};

constexpr Way combine_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
    {{partial, replicated, replicated}, {partial}},
};

constexpr Way combine_grad_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows}, {by_rows, by_rows}},
    {{replicated, partial, replicated, replicated}, {replicated, partial}},
};

constexpr Way gate_rows_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{partial, replicated}, {partial}},
};

constexpr Way gate_rows_grad_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows, by_rows}},
    {{replicated, partial, replicated}, {replicated, partial}},
};

}  // namespace

// Permute and Combine are replicated_only: sums over ranks are then formed of tokens, not of their k rows.
std::span<const OpType> experts_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RouterLogits>(),
       .adjoint = router_adjoint,
       .flops = router_flops,
       .workspace = router_workspace,
       .ways = router_ways},
      {.record = record<Route>(), .adjoint = route_adjoint, .ways = route_ways, .kept = true},
      {.record = record<RouteGrad>(), .ways = route_grad_ways},
      {.record = record<SortByExpert>(),
       .workspace = sort_workspace,
       .ways = sort_ways,
       .kept = true,
       .own_size_from = SortByExpert::offsets},
      {.record = record<Permute>(),
       .adjoint = permute_adjoint,
       .ways = permute_ways,
       .replicated_only = true},
      {.record = record<PermuteGrad>(), .ways = permute_grad_ways},
      {.record = record<Combine>(),
       .adjoint = combine_adjoint,
       .ways = combine_ways,
       .replicated_only = true},
      {.record = record<CombineGrad>(), .ways = combine_grad_ways},
      {.record = record<GateRows>(),
       .adjoint = gate_rows_adjoint,
       .ways = gate_rows_ways,
       .replicated_only = true},
      {.record = record<GateRowsGrad>(), .ways = gate_rows_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
