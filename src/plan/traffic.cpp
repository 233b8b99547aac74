#include "plan/traffic.hpp"

#include <numeric>
#include <utility>

namespace ztrain::plan {
namespace {

using Key = std::pair<std::uint8_t, program::CommKind>;

void count(TrafficRow& row, std::int64_t size, std::int64_t messages) {
  row.messages += messages;
  row.bytes += size * messages;
  row.sizes[size] += messages;
}

}  // namespace

std::vector<TrafficRow> traffic_of(const program::Program& program) {
  std::map<Key, TrafficRow> rows;
  for (program::OpId id = 0; id < std::ssize(program.ops); ++id) {
    const program::Op& op = program.op(id);
    if (!op.communicates()) continue;
    TrafficRow& row = rows[{op.comm.axes.bits(), op.comm.kind}];
    row.axes = op.comm.axes;
    row.kind = op.comm.kind;
    row.members = program.mesh.size(op.comm.axes);
    count(row, op.comm.sent_bytes, program.times(id));
  }
  std::vector<TrafficRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
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
