// Norms of rows.

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/norm/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

void rmsnorm_adjoint(Tape& t, const model::Node& n) {
  const GradientTarget dw = t.target(n.inputs[RmsNorm::weight]);
  const auto [dx, addend] = t.target_with_addend(n.inputs[RmsNorm::x]);
  std::vector<TensorId> inputs{t.tensor(n.inputs[RmsNorm::x]), t.tensor(n.inputs[RmsNorm::weight]),
                               t.tensor(n.outputs[RmsNorm::rstd]), t.gradient(n.outputs[RmsNorm::y])};
  if (addend != no_tensor) inputs.push_back(addend);
  const Tensor& x = t.info(inputs[RmsNormGrad::x]);
  const std::int64_t width = t.info(inputs[RmsNormGrad::weight]).shape[0], rows = elements(x.shape) / width;
  const TensorId ws =
      t.workspace(n.name, rmsnorm_backward_workspace_bytes(rows, width, x.dtype, t.kernels()));
  const RmsNormGrad record{dw.accumulate, record_of<RmsNorm>(n.attributes).of_heads, addend != no_tensor};
  t.emit(record, n.name, std::move(inputs), {dx, dw.tensor, ws});
  t.reads(dw);
}

/// A norm of whole rows needs them whole; one of heads does not.
template <class Record>
bool of_heads(const Attributes& a, AxisSet) {
  return record_of<Record>(a).of_heads;
}
OperandGroups rmsnorm_grad_groups(const Op& op) {
  if (record_of<RmsNormGrad>(op.attributes).has_addend) return groups_that_end(op, {1, 2, 3, 4, 5});
  return groups_that_end(op, {1, 2, 3, 4});
}

constexpr Way rmsnorm_ways[] = {
    {{by_rows, replicated}, {by_rows, by_rows}},
    {{by_columns, replicated}, {by_columns, by_rows}, {.of = of_heads<RmsNorm>}},
};

constexpr Way add_rmsnorm_ways[] = {
    {{by_rows, by_rows, replicated}, {by_rows}},
};

constexpr Way rmsnorm_grad_ways[] = {
    {{by_rows, replicated, by_rows, by_rows, by_rows}, {by_rows, partial}},
    {{replicated, replicated, replicated, partial, partial}, {partial, partial}},
    {{by_columns, replicated, by_rows, by_columns, by_columns},
     {by_columns, partial},
     {.of = of_heads<RmsNormGrad>}},
};

}  // namespace

std::span<const OpType> norm_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RmsNorm>(), .adjoint = rmsnorm_adjoint, .ways = rmsnorm_ways},
      {.record = record<AddRmsNorm>(),
       .overlay = 2,
       .ways = add_rmsnorm_ways},  // made after expansion, by passes/fusion.cpp
      {.record = record<RmsNormGrad>(), .ways = rmsnorm_grad_ways, .groups = rmsnorm_grad_groups},
  };
  return rows;
}

}  // namespace ztrain::program
