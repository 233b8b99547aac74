// Activations of feed-forwards.

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/activation/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void gated_adjoint(Tape& t, const model::Node& n) {
  GatedActivationGrad record;
  static_cast<GatedActivation&>(record) = record_of<GatedActivation>(n.attributes);
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.push_back(t.gradient(n.outputs[GatedActivation::y]));
  t.contribute(n.inputs,
               [&](const std::vector<TensorId>& d) { t.emit(record, n.name, std::move(inputs), d); });
}

void activation_adjoint(Tape& t, const model::Node& n) {
  ActivationGrad record;
  static_cast<Activation&>(record) = record_of<Activation>(n.attributes);
  t.contribute(n.inputs[Activation::x], [&](TensorId dx) {
    t.emit(record, n.name, {t.tensor(n.inputs[Activation::x]), t.gradient(n.outputs[Activation::y])}, {dx});
  });
}

void xielu_adjoint(Tape& t, const model::Node& n) {
  const auto record = record_of<Xielu>(n.attributes);
  const model::ValueId p = n.inputs[Xielu::alpha_p], below = n.inputs[Xielu::alpha_n];
  REQUIRE(t.wants(p) == t.wants(below), "{}: alpha_p and alpha_n are trained together or not at all", n.name);
  t.contribute(n.inputs[Xielu::x], [&](TensorId dx) {
    const GradientTarget dp = t.target(p), dn = t.target(below);
    std::vector<TensorId> inputs = t.tensors(n.inputs);
    inputs.push_back(t.gradient(n.outputs[Xielu::y]));
    const TensorId ws =
        t.workspace(n.name, xielu_backward_workspace_bytes(t.info(inputs[XieluGrad::x]).shape[0]));
    t.emit(XieluGrad{record.beta, record.eps, dp.accumulate}, n.name, std::move(inputs),
           {dx, dp.tensor, dn.tensor, ws});
    t.reads(dp);
    t.reads(dn);
  });
}

// gate and up, apart or joined, are placed alike.
OperandGroups gated_groups(const Op& op) {
  return groups_that_end(op, {op.inputs.size()});
}
OperandGroups gated_grad_groups(const Op& op) {
  return groups_that_end(op, {op.inputs.size() - 1, op.inputs.size()});
}
OperandGroups xielu_grad_groups(const Op& op) {
  return groups_that_end(op, {1, 2, 3, 4});
}

constexpr Way gated_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{routed, routed}, {routed}},
    {{by_columns, by_columns}, {by_columns}},
};

constexpr Way gated_grad_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{routed, routed}, {routed}},
    {{by_columns, by_columns}, {by_columns}},
    {{replicated, partial}, {partial}},
};

constexpr Way activation_ways[] = {
    {{by_rows}, {by_rows}},
    {{by_columns}, {by_columns}},
};

constexpr Way activation_grad_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns}, {by_columns}},
    {{replicated, partial}, {partial}},
};

constexpr Way xielu_ways[] = {
    {{by_rows, replicated, replicated}, {by_rows}},
    {{by_columns, replicated, replicated}, {by_columns}},
};

constexpr Way xielu_grad_ways[] = {
    {{by_rows, replicated, replicated, by_rows}, {by_rows, partial, partial}},
    {{by_columns, replicated, replicated, by_columns}, {by_columns, partial, partial}},
    {{replicated, replicated, replicated, partial}, {partial, partial, partial}},
};

}  // namespace

std::span<const OpType> activation_ops() {
  static constexpr OpType rows[] = {
      {.record = record<GatedActivation>(),
       .adjoint = gated_adjoint,
       .joins_inputs = true,
       .ways = gated_ways,
       .groups = gated_groups},
      {.record = record<GatedActivationGrad>(),
       .overlay = 1,
       .ways = gated_grad_ways,
       .groups = gated_grad_groups},
      {.record = record<Activation>(), .adjoint = activation_adjoint, .ways = activation_ways},
      {.record = record<ActivationGrad>(), .overlay = 2, .ways = activation_grad_ways},
      {.record = record<Xielu>(), .adjoint = xielu_adjoint, .ways = xielu_ways},
      {.record = record<XieluGrad>(), .overlay = 1, .ways = xielu_grad_ways, .groups = xielu_grad_groups},
  };
  return rows;
}

}  // namespace ztrain::program
