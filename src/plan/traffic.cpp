#include "plan/traffic.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "kernels/elementwise/record.hpp"
#include "plan/links.hpp"

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

}  // namespace ztrain::plan
