#include "plan/links.hpp"

#include <algorithm>

#include "layout/comm_cost.hpp"

namespace ztrain::plan {

using program::Op;
using program::Program;

bool is_message(const Op& op) {
  return op.comm.kind == program::CommKind::send || op.comm.kind == program::CommKind::recv;
}

bool stays_on_node(const Program& p, const Op& op, int ranks_per_node) {
  const std::vector<int> group = Coordinate(p.mesh, p.rank).group(op.comm.axes);
  return group[static_cast<std::size_t>(op.comm.peer)] / ranks_per_node == p.rank / ranks_per_node;
}

GroupPlace place_of(const Coordinate& at, AxisSet axes, int ranks_per_node) {
  const std::vector<int> group = at.group(axes);
  const int node = at.rank() / ranks_per_node;
  const auto here =
      std::count_if(group.begin(), group.end(), [&](int rank) { return rank / ranks_per_node == node; });
  return {static_cast<int>(here), static_cast<int>(group.size())};
}

double bytes_out_of_node(const Program& p, const Op& op, const GroupPlace& place, int ranks_per_node) {
  using program::CommKind;
  const auto sent = static_cast<double>(op.comm.sent_bytes);
  if (place.members == place.on_node) return 0;
  if (is_message(op)) return stays_on_node(p, op, ranks_per_node) ? 0 : sent;
  if (op.comm.kind == CommKind::all_to_all)
    return sent * (place.members - place.on_node) / (place.members - 1);
  const bool sums = op.comm.kind == CommKind::reduce_scatter || op.comm.kind == CommKind::all_reduce;
  if (!sums || p.mesh.per_node == 0 || size_of(p.tensor(op.inputs[0]).dtype) != 2)
    return sent / place.on_node;
  const SumGroup group = sum_group(p.mesh, op.comm.axes);
  const DType in = p.tensor(op.inputs[0]).dtype;
  const std::int64_t count = elements(p.tensor(op.outputs[0]).shape);
  const auto summed = [&](std::int64_t slice) {
    return static_cast<double>(group.by_node(in) ? partial_sums_out_of_node(group, slice)
                                                 : (place.members - place.on_node) * slice * size_of(in));
  };
  if (op.comm.kind == CommKind::reduce_scatter) return summed(count);
  const std::int64_t slice = all_reduce_slice(group.ranks, count);
  return summed(slice) +
         static_cast<double>(all_gather_sent(group.ranks, slice * size_of(in))) / place.on_node;
}

}  // namespace ztrain::plan
