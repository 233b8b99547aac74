#include "kernels/load/record.hpp"

#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

/// The layers share one entry of a way.
OperandGroups all_layers(const Op& op) {
  return groups_that_end(op, {op.inputs.size()});
}

/// Each row belongs to one micro-batch.
constexpr Way counts_ways[] = {
    {{by_rows}, {partial}},
    {{partial}, {partial}},
};

/// Gives each operand its own group. The op has no ways, so its operands must be equal on all ranks.
OperandGroups each_apart(const Op& op) {
  return groups_that_end(op, {1, 2, 3});
}

/// Returns the bytes of two fp64 numbers for each layer: its largest load and its idle experts.
std::int64_t partials_workspace(const Program& p, const Op& op) {
  const auto losses = static_cast<std::size_t>(record_of<ExpertsPartials>(op.attributes).losses);
  return op.inputs.size() == losses ? 0 : 16 * p.tensor(op.inputs.back()).shape[0];
}

}  // namespace

std::span<const OpType> load_ops() {
  static constexpr OpType rows[] = {
      {.record = record<ExpertCounts>(), .ways = counts_ways, .groups = all_layers},
      {.record = record<ExpertsPartials>(), .workspace = partials_workspace},
      {.record = record<MoveBiases>(), .groups = each_apart},
  };
  return rows;
}

}  // namespace ztrain::program
