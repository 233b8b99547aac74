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
bool cuts_rows(const model::Node& node, const Placing& placing, AxisSet) {
  return placing.inputs[RmsNorm::x] == split(1) && !record_of<RmsNorm>(node.attributes).of_heads;
}

}  // namespace

std::span<const OpType> norm_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RmsNorm>(),
       .adjoint = rmsnorm_adjoint,
       .placings = "RR>RR II>II 0R>00 1R>10",
       .refuses = cuts_rows},
      {.record = record<AddRmsNorm>(), .overlay = 2},  // made after expansion, by passes/fusion.cpp
      {.record = record<RmsNormGrad>()},
  };
  return rows;
}

}  // namespace ztrain::program
