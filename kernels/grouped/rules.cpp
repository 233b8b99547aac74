// Linear layers of rows in groups.

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/grouped/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// Returns the rows that cost FLOPs. A buffer of R rows may have rows that belong to no group.
double rows_of_groups(const Program& p, const Op& op) {
  const std::int64_t even = op.attributes.integer("even_rows", 0);
  return even > 0 ? static_cast<double>(even) : dim(p, op.inputs[0], 0);
}
double grouped_flops(const Program& p, const Op& op) {
  return 2 * rows_of_groups(p, op) * dim(p, op.inputs[2], 1) * dim(p, op.inputs[2], 2);
}
double grouped_weight_flops(const Program& p, const Op& op) {
  using enum GroupedLinearGradWeight::In;
  return 2 * rows_of_groups(p, op) * dim(p, op.inputs[dy], 1) * dim(p, op.inputs[x], 1);
}

/// C has [R, n] or [E, m, n] elements; operand 0 is A [R, k], or its transpose with R = k.
std::int64_t grouped_workspace(const Program& p, const Op& op) {
  const Tensor &a = p.tensor(op.inputs[0]), &c = p.tensor(op.outputs[0]);
  const bool of_weights = c.shape.size() == 3;
  const std::int64_t m = of_weights ? c.shape[1] : a.shape[0], k = of_weights ? a.shape[0] : a.shape[1];
  return grouped_workspace_bytes(m, c.shape.back(), k, a.dtype, c.dtype, p.target);
}

void grouped_adjoint(Tape& t, const model::Node& n) {
  using Op = GroupedLinear;
  const std::int64_t even_rows = record_of<Op>(n.attributes).even_rows;
  const auto emit = [&]<class Record>(Record, model::ValueId of, std::vector<TensorId> inputs) {
    if (!t.wants(of)) return;
    const GradientTarget target = t.target(of);
    t.emit(Record{{target.accumulate, even_rows}}, n.name, std::move(inputs), {target.tensor});
    t.reads(target);
  };
  const TensorId dy = t.gradient(n.outputs[Op::y]), offsets = t.tensor(n.inputs[Op::offsets]);
  const model::ValueId x = n.inputs[Op::x], weight = n.inputs[Op::weight];
  emit(GroupedLinearGradInput{}, x, {dy, offsets, t.tensor(weight)});
  emit(GroupedLinearGradWeight{}, weight, {dy, offsets, t.tensor(x)});
  if (n.inputs.size() > Op::bias) emit(GroupedLinearGradBias{}, n.inputs[Op::bias], {dy, offsets});
}

/// The bias of a sum is added by one rank.
void fit_grouped(model::Node& node, const PartOfNode& part) {
  edit<GroupedLinear>(node.attributes, [&](GroupedLinear& linear) {
    if (part.output == partial && node.inputs.size() > GroupedLinear::bias)
      linear.adds_bias = part.index == 0 ? 1 : 0;
  });
}

bool every_rank_adds_group_bias(const Attributes& a) {
  return record_of<GroupedLinear>(a).adds_bias < 0;
}

// These ways are those of a linear layer. Parts of the rows have offsets of their own. If columns are cut,
// all ranks have the same offsets. Ranks that divide the experts have the rows of their own experts.
constexpr Way grouped_ways[] = {
    {{by_rows, by_rows, replicated, replicated}, {by_rows}},
    {{replicated, replicated, split(1), split(1)}, {by_columns}, {.says = every_rank_adds_group_bias}},
    {{by_columns, replicated, split(2), invariant}, {partial}},
    {{partial, replicated, replicated, invariant}, {partial}},
    {{routed, routed, split(0), split(0)}, {routed}},
};

constexpr Way grouped_grad_input_ways[] = {
    {{by_rows, by_rows, replicated}, {by_rows}},
    {{by_columns, replicated, split(1)}, {partial}},
    {{replicated, replicated, split(2)}, {by_columns}},
    {{partial, replicated, replicated}, {partial}},
    {{routed, routed, split(0)}, {routed}},
};

constexpr Way grouped_grad_weight_ways[] = {
    {{by_rows, by_rows, by_rows}, {partial}},           {{by_columns, replicated, replicated}, {split(1)}},
    {{replicated, replicated, by_columns}, {split(2)}}, {{partial, replicated, replicated}, {partial}},
    {{replicated, replicated, partial}, {partial}},     {{routed, routed, routed}, {split(0)}},
};

constexpr Way grouped_grad_bias_ways[] = {
    {{by_rows, by_rows}, {partial}},
    {{by_columns, replicated}, {split(1)}},
    {{partial, replicated}, {partial}},
    {{routed, routed}, {split(0)}},
};

}  // namespace

std::span<const OpType> grouped_ops() {
  static constexpr OpType rows[] = {
      {.record = record<GroupedLinear>(),
       .adjoint = grouped_adjoint,
       .flops = grouped_flops,
       .workspace = grouped_workspace,
       .ways = grouped_ways,
       .fit = fit_grouped},
      {.record = record<GroupedLinearGradInput>(),
       .flops = grouped_flops,
       .workspace = grouped_workspace,
       .ways = grouped_grad_input_ways},
      {.record = record<GroupedLinearGradWeight>(),
       .flops = grouped_weight_flops,
       .workspace = grouped_workspace,
       .for_weights = true,
       .ways = grouped_grad_weight_ways},
      {.record = record<GroupedLinearGradBias>(), .for_weights = true, .ways = grouped_grad_bias_ways},
  };
  return rows;
}

}  // namespace ztrain::program
