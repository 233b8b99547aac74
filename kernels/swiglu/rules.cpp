#include "kernels/swiglu/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void swiglu_adjoint(Tape& t, const model::Node& n) {
  std::vector<TensorId> inputs = t.tensors(n.inputs);
  inputs.push_back(t.gradient(n.outputs[Swiglu::y]));
  t.contribute(n.inputs,
               [&](const std::vector<TensorId>& d) { t.emit(SwigluGrad{}, n.name, std::move(inputs), d); });
}

// gate and up, apart or joined, are placed alike.
OperandGroups swiglu_groups(const Op& op) {
  return groups_that_end(op, {op.inputs.size()});
}
OperandGroups swiglu_grad_groups(const Op& op) {
  return groups_that_end(op, {op.inputs.size() - 1, op.inputs.size()});
}

constexpr Way swiglu_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns}, {by_columns}},
};

constexpr Way swiglu_grad_ways[] = {
    {{by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns}, {by_columns}},
    {{replicated, partial}, {partial}},
};

}  // namespace

std::span<const OpType> swiglu_ops() {
  static constexpr OpType rows[] = {
      {.record = record<Swiglu>(), .adjoint = swiglu_adjoint, .ways = swiglu_ways, .groups = swiglu_groups},
      {.record = record<SwigluGrad>(), .overlay = 1, .ways = swiglu_grad_ways, .groups = swiglu_grad_groups},
  };
  return rows;
}

}  // namespace ztrain::program
