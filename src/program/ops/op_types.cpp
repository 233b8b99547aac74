#include "program/ops/op_type.hpp"

#include "base/error.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {

// Each folder of kernels gives its rows by a function; the list of folders is written when the build is
// configured.
using Kind = std::span<const OpType>();
#define ZTRAIN_FOLDER(name) Kind name##_ops;
#include "op_rules.inc"
#undef ZTRAIN_FOLDER

namespace {

constexpr Kind* kinds[] = {
#define ZTRAIN_FOLDER(name) name##_ops,
#include "op_rules.inc"
#undef ZTRAIN_FOLDER
};

}  // namespace

void pass_gradient(Tape& t, const model::Node& n) {
  t.pass(n.inputs[0], t.gradient(n.outputs[0]));
}

std::vector<std::span<const OpType>> op_table() {
  std::vector<std::span<const OpType>> table;
  for (const auto kind : kinds) table.push_back(kind());
  return table;
}

const OpType& op_type(std::string_view name) {
  for (const auto kind : kinds)
    for (const OpType& row : kind())
      if (row.record.name == name) return row;
  ASSERT(false, "no op named '{}' in the op table", name);
}

void complete(Program& program, Op& op) {
  const OpType& row = op_type(op.type);
  if (const std::int64_t bytes = row.workspace ? row.workspace(program, op) : 0; bytes > 0)
    op.outputs.push_back(program.add_workspace("workspace." + op.name, bytes));
  if (row.flops) op.flops = row.flops(program, op);
}

void check_record(const Op& op) {
  const OpRecord& record = op_type(op.type).record;
  ASSERT(record.reads.allows(op.inputs.size()), "'{}' of {} reads {} tensors, and {} to {} are legal",
         op.type, op.name, op.inputs.size(), record.reads.least, record.reads.most);
  ASSERT(record.writes.allows(op.outputs.size()), "'{}' of {} writes {} tensors, and {} to {} are legal",
         op.type, op.name, op.outputs.size(), record.writes.least, record.writes.most);
  record.check(op.attributes);
}

std::vector<Placing> placings_of(const model::Node& node, AxisSet axes) {
  const OpType& row = op_type(node.op);
  std::vector<Placing> placings;
  for (Placing& placing : parse_placings(row.placings)) {
    ASSERT(node.inputs.size() <= placing.inputs.size() && node.outputs.size() <= placing.outputs.size(),
           "{} has {} inputs and {} outputs, its row of the op table tells of {} and {}", node.op,
           node.inputs.size(), node.outputs.size(), placing.inputs.size(), placing.outputs.size());
    placing.inputs.resize(node.inputs.size());
    placing.outputs.resize(node.outputs.size());
    if (row.refuses && row.refuses(node, placing, axes)) continue;
    placings.push_back(std::move(placing));
  }
  return placings;
}

}  // namespace ztrain::program
