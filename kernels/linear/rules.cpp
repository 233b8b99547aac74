// Linear layers.

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/linear/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// 2 T n k: operand 0 is [T, n or k], operand 1 the weight [n, k], or the first of joined ones.
template <class Record>
double linear_flops(const Program& p, const Op& op) {
  const std::int64_t parts = record_of<Record>(op.attributes).parts;
  double rows = 0;
  for (std::int64_t i = 0; i < parts; ++i) rows += dim(p, op.inputs[at(1 + i)], 0);
  return 2 * dim(p, op.inputs[0], 0) * rows * dim(p, op.inputs[1], 1);
}
double grad_weight_flops(const Program& p, const Op& op) {
  using enum LinearGradWeight::In;
  return 2 * dim(p, op.inputs[dy], 0) * dim(p, op.inputs[dy], 1) * dim(p, op.inputs[x], 1);
}

/// The outputs one below the other are C[m, n]; operand 0 holds m x k elements, whichever way round it is
/// read.
std::int64_t gemm_workspace(const Program& p, const Op& op) {
  const Tensor& c = p.tensor(op.outputs[0]);
  std::int64_t m = 0;
  for (const TensorId out : op.outputs) m += p.tensor(out).shape[0];
  const std::int64_t k = elements(p.tensor(op.inputs[0]).shape) / m;
  return gemm_workspace_bytes(m, c.shape[1], k, p.tensor(op.inputs[0]).dtype, c.dtype, p.target);
}

/// An op whose outputs are the gradients of joined parameters: all are added to, or none.
template <class Record>
void emit_joined(Tape& t, const model::Node& n, std::vector<TensorId> inputs,
                 std::span<const model::ValueId> parameters) {
  std::vector<GradientTarget> targets;
  std::vector<TensorId> outputs;
  for (const model::ValueId v : parameters) {
    targets.push_back(t.target(v));
    outputs.push_back(targets.back().tensor);
    ASSERT(targets.back().accumulate == targets[0].accumulate,
           "{}: of the joined gradients some have been written and some not", n.name);
  }
  const auto parts = static_cast<std::int64_t>(parameters.size());
  t.emit(Record{{targets[0].accumulate, parts}}, n.name, std::move(inputs), std::move(outputs));
  for (const GradientTarget& target : targets) t.reads(target);
}

void linear_adjoint(Tape& t, const model::Node& n) {
  const auto linear = record_of<Linear>(n.attributes);
  const model::ValueId x = n.inputs[Linear::x];
  const TensorId dy = t.gradient(n.outputs[Linear::y]);
  const std::span operands(n.inputs);
  const auto weights = operands.subspan(Linear::weight, linear.bias() - Linear::weight),
             biases = operands.subspan(linear.bias());
  if (t.wants(x)) {
    const GradientTarget dx = t.target(x);
    std::vector<TensorId> inputs = t.tensors(weights);
    inputs.insert(inputs.begin(), dy);
    t.emit(LinearGradInput{{dx.accumulate, linear.parts}}, n.name, std::move(inputs), {dx.tensor});
    t.reads(dx);
  }
  if (t.wants(weights[0])) emit_joined<LinearGradWeight>(t, n, {dy, t.tensor(x)}, weights);
  if (!biases.empty() && t.wants(biases[0])) emit_joined<LinearGradBias>(t, n, {dy}, biases);
}

/// The bias of a sum is added by one rank.
void fit_linear(model::Node& node, const PartOfNode& part) {
  edit<Linear>(node.attributes, [&](Linear& linear) {
    if (part.output == partial && node.inputs.size() > linear.bias())
      linear.adds_bias = part.index == 0 ? 1 : 0;
  });
}

bool every_rank_adds_bias(const Attributes& a) {
  return record_of<Linear>(a).adds_bias < 0;
}
OperandGroups linear_groups(const Op& op) {
  return groups_that_end(op, {1, record_of<Linear>(op.attributes).bias(), op.inputs.size()});
}
OperandGroups linear_grad_input_groups(const Op& op) {
  return groups_that_end(op, {1, 1 + at(record_of<LinearGradInput>(op.attributes).parts)});
}

// A bias beside a partial product is added by one rank.
constexpr Way linear_ways[] = {
    {{by_rows, replicated, replicated}, {by_rows}},
    {{replicated, by_rows, by_rows}, {by_columns}, {.says = every_rank_adds_bias}},
    {{by_columns, by_columns, invariant}, {partial}},
    {{partial, replicated, invariant}, {partial}},
};

constexpr Way linear_grad_input_ways[] = {
    {{by_rows, replicated}, {by_rows}},
    {{by_columns, by_rows}, {partial}},
    {{replicated, by_columns}, {by_columns}},
    {{partial, replicated}, {partial}},
};

constexpr Way linear_grad_weight_ways[] = {
    {{by_rows, by_rows}, {partial}},          {{by_columns, replicated}, {by_rows}},
    {{replicated, by_columns}, {by_columns}}, {{partial, replicated}, {partial}},
    {{replicated, partial}, {partial}},
};

constexpr Way linear_grad_bias_ways[] = {
    {{by_rows}, {partial}},
    {{by_columns}, {by_rows}},
    {{partial}, {partial}},
};

}  // namespace

std::span<const OpType> linear_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Linear>(),
       .adjoint = linear_adjoint,
       .flops = linear_flops<Linear>,
       .workspace = gemm_workspace,
       .ways = linear_ways,
       .groups = linear_groups,
       .fit = fit_linear},
      {.record = record<LinearGradInput>(),
       .flops = linear_flops<LinearGradInput>,
       .workspace = gemm_workspace,
       .ways = linear_grad_input_ways,
       .groups = linear_grad_input_groups},
      {.record = record<LinearGradWeight>(),
       .flops = grad_weight_flops,
       .workspace = gemm_workspace,
       .for_weights = true,
       .ways = linear_grad_weight_ways},
      {.record = record<LinearGradBias>(), .for_weights = true, .ways = linear_grad_bias_ways},
  };
  return rows;
}

}  // namespace ztrain::program
