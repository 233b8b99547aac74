#include "program/passes/fusion.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/norm/record.hpp"

#include <utility>

namespace ztrain::program {
namespace {

/// Whether op `norm` follows op `sum` and may take it in: it normalises all of each row of the sum.
bool fuse(const Program& program, const Op& sum, const Op& norm) {
  if (sum.type != Add::op || norm.type != RmsNorm::op || norm.inputs[RmsNorm::x] != sum.outputs[Add::sum])
    return false;
  if (record_of<RmsNorm>(norm.attributes).of_heads) return false;
  const auto forward = [](const Op& op) { return op.action.kind != ActionKind::backward; };
  const Tensor& r = program.tensor(sum.outputs[Add::sum]);
  return forward(sum) && forward(norm) && sum.stream == norm.stream && sum.after.empty() &&
         norm.after.empty() && r.shape.size() == 2 &&
         r.shape[1] == elements(program.tensor(norm.inputs[RmsNorm::weight]).shape) &&
         r.dtype == program.tensor(norm.inputs[RmsNorm::weight]).dtype;
}

}  // namespace

void fuse_residual_norms(Program& program) {
  std::vector<Op> ops;
  ops.reserve(program.ops.size());
  for (Op& op : program.ops) {
    if (!ops.empty() && fuse(program, ops.back(), op)) {
      const Op sum = std::move(ops.back());
      ops.pop_back();
      op.type = AddRmsNorm::op;
      op.inputs = {sum.inputs[Add::x], sum.inputs[Add::addend], op.inputs[RmsNorm::weight]};
      op.outputs.insert(op.outputs.begin(), sum.outputs[Add::sum]);
    }
    ops.push_back(std::move(op));
  }
  program.ops = std::move(ops);
}

}  // namespace ztrain::program
