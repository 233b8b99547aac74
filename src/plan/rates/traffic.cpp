#include "plan/rates/traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "kernels/elementwise/record.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::plan {

namespace {

using Key = std::pair<std::uint32_t, program::CommKind>;

void count(TrafficRow& row, std::int64_t size, std::int64_t messages) {
  row.messages += messages;
  row.bytes += size * messages;
  row.sizes[size] += messages;
}

}  // namespace

std::vector<TrafficRow> traffic_of(const program::Program& program, int ranks_per_node) {
  std::map<Key, TrafficRow> rows;
  const Coordinate here(program.mesh, program.rank);
  std::map<std::uint32_t, GroupPlace> places;
  const int per_node = ranks_per_node > 0 ? ranks_per_node : program.mesh.ranks();
  for (program::OpId id = 0; id < std::ssize(program.ops); ++id) {
    const program::Op& op = program.op(id);
    if (!op.communicates()) continue;
    const auto [it, fresh] = rows.try_emplace({op.comm.axes.bits(), op.comm.kind});
    TrafficRow& row = it->second;
    GroupPlace& place = places[op.comm.axes.bits()];
    if (fresh) {
      row.axes = op.comm.axes;
      row.kind = op.comm.kind;
      place = place_of(here, op.comm.axes, per_node);
      row.members = place.members;
    }
    const std::int64_t times = program.times(id);
    count(row, op.comm.sent_bytes, times);
    row.out_of_node += static_cast<double>(times) * bytes_out_of_node(program, op, place, per_node);
  }
  std::vector<TrafficRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

std::vector<TierTraffic> tier_traffic_of(const program::Program& program) {
  std::map<std::pair<program::Tier, program::Tier>, TierTraffic> rows;
  const auto tier = [&](program::TensorId t) { return program.tensor(program.storage(t)).tier; };
  for (program::OpId id = 0; id < std::ssize(program.ops); ++id) {
    const program::Op& op = program.op(id);
    if (op.type != Copy::op || tier(op.inputs[Copy::x]) == tier(op.outputs[Copy::y])) continue;
    TierTraffic& row = rows[{tier(op.inputs[Copy::x]), tier(op.outputs[Copy::y])}];
    row.from = tier(op.inputs[Copy::x]);
    row.to = tier(op.outputs[Copy::y]);
    row.copies += program.times(id);
    row.bytes += program.times(id) * program.tensor(op.inputs[Copy::x]).bytes();
  }
  std::vector<TierTraffic> list;
  for (const auto& [key, row] : rows) list.push_back(row);
  return list;
}

std::string text_of(const std::vector<TierTraffic>& rows) {
  std::string text;
  for (const TierTraffic& row : rows)
    text += fmt::format("  from {} to {}: {} in {}\n", name_of(row.from), name_of(row.to),
                        format_decimal_bytes(row.bytes), count_text(row.copies, "transfer"));
  return text;
}

std::int64_t total_bytes(const std::vector<TrafficRow>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0},
                         [](std::int64_t sum, const TrafficRow& row) { return sum + row.bytes; });
}

std::int64_t total_messages(const std::vector<TrafficRow>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0},
                         [](std::int64_t sum, const TrafficRow& row) { return sum + row.messages; });
}

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
  if (op.comm.kind == CommKind::all_to_all || op.comm.kind == CommKind::all_to_all_rows)
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
