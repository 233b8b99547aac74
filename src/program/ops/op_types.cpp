#include "program/ops/op_type.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/error.hpp"

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

std::vector<std::span<const OpType>> op_table() {
  std::vector<std::span<const OpType>> table;
  for (const auto kind : kinds) table.push_back(kind());
  return table;
}

const OpType& op_type(std::string_view name) {
  static const auto rows = [] {
    std::unordered_map<std::string_view, const OpType*> by_name;
    for (const auto kind : kinds)
      for (const OpType& row : kind()) by_name.emplace(row.record.name, &row);
    return by_name;
  }();
  const auto row = rows.find(name);
  ASSERT(row != rows.end(), "no op named '{}' in the op table", name);
  return *row->second;
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
  if (row.ways.empty()) return placings;
  const std::size_t reads = node.inputs.size(), writes = node.outputs.size();
  if (!row.invariant_only)
    placings.push_back({std::vector(reads, replicated), std::vector(writes, replicated)});
  if (!row.replicated_only)
    placings.push_back({std::vector(reads, invariant), std::vector(writes, invariant)});
  for (const Way& way : row.ways) {
    const bool goes = way.allows(node.attributes, axes) && (axes.bits() & ~way.when.nodes_over.bits()) == 0;
    if (way.inputs.size() < reads || !goes) continue;
    ASSERT(writes <= way.outputs.size(), "{} has {} outputs, and a way of its row tells of {}", node.op,
           writes, way.outputs.size());
    placings.push_back({std::vector(way.inputs.begin(), way.inputs.begin() + reads),
                        std::vector(way.outputs.begin(), way.outputs.begin() + writes)});
  }
  return placings;
}

OperandGroups groups_that_end(const Op& op, std::initializer_list<std::size_t> ends) {
  OperandGroups groups;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    groups.emplace_back();
    for (; begin < end; ++begin) groups.back().push_back(op.inputs[begin]);
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

OperandGroups groups_of(const Op& op) {
  const OpType& row = op_type(op.type);
  if (row.groups) return row.groups(op);
  std::size_t read = 0;
  for (const Way& way : row.ways) read = std::max(read, way.inputs.size());
  OperandGroups each;
  for (std::size_t i = 0; i < std::min(read, op.inputs.size()); ++i) each.push_back({op.inputs[i]});
  return each;
}

}  // namespace ztrain::program
