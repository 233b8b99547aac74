#include "program/passes/fusion.hpp"

#include <utility>

namespace ztrain::program {
namespace {

/// Whether op `norm` follows op `sum` and may take it in: it normalises all of each row of the sum.
bool fuse(const Program& program, const Op& sum, const Op& norm) {
  if (sum.type != "add" || norm.type != "rmsnorm" || norm.inputs[0] != sum.outputs[0]) return false;
  if (norm.attributes.has("of_heads")) return false;
  const auto forward = [](const Op& op) { return op.action.kind != ActionKind::backward; };
  const Tensor& r = program.tensor(sum.outputs[0]);
  return forward(sum) && forward(norm) && sum.stream == norm.stream && sum.after.empty() &&
         norm.after.empty() && r.shape.size() == 2 &&
         r.shape[1] == elements(program.tensor(norm.inputs[1]).shape) &&
         r.dtype == program.tensor(norm.inputs[1]).dtype;
}

}  // namespace

void fuse_residual_norms(Program& program) {
  std::vector<Op> ops;
  ops.reserve(program.ops.size());
  for (Op& op : program.ops) {
    if (!ops.empty() && fuse(program, ops.back(), op)) {
      const Op sum = std::move(ops.back());
      ops.pop_back();
      op.type = "add_rmsnorm";
      op.inputs = {sum.inputs[0], sum.inputs[1], op.inputs[1]};
      op.outputs.insert(op.outputs.begin(), sum.outputs[0]);
    }
    ops.push_back(std::move(op));
  }
  program.ops = std::move(ops);
}

}  // namespace ztrain::program
