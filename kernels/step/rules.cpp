#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

std::int64_t sum_workspace(const Program& p, const Op& op) {
  return sum_squares_workspace_bytes(elements(p.tensor(op.inputs[SumSquares::gradient]).shape));
}

}  // namespace

std::span<const OpType> step_ops() {
  static constexpr OpType rows[] = {
      {.record = record<SumSquares>(), .workspace = sum_workspace},
      {.record = record<StepPartials>()},
      {.record = record<FinishStep>()},
  };
  return rows;
}

}  // namespace ztrain::program
