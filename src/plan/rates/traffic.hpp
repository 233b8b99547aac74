#pragma once
// Counts what one rank sends in one run of a Program, by axes and kind of collective, over which links the
// bytes go (within a node, or out of it), and the copies between tiers.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::plan {

/// Collectives of one kind over one set of axes. Bytes are those that this rank sends.
struct TrafficRow {
  AxisSet axes;
  program::CommKind kind = program::CommKind::none;
  int members = 1;  ///< of a group
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  double out_of_node = 0;  ///< bytes that go over this rank's link out of its node: see bytes_out_of_node
  std::map<std::int64_t, std::int64_t> sizes;  ///< messages by bytes sent in each
};

/// Rows by axes, then by kind; their bytes add up to those of all ops. ranks_per_node 0: all are on one node.
std::vector<TrafficRow> traffic_of(const program::Program& program, int ranks_per_node = 0);

/// Copies from one tier to another, of this rank.
struct TierTraffic {
  program::Tier from{}, to{};
  std::int64_t copies = 0, bytes = 0;
};

/// Those that there are, by tiers.
std::vector<TierTraffic> tier_traffic_of(const program::Program& program);
/// A line each.
std::string text_of(const std::vector<TierTraffic>& rows);

std::int64_t total_bytes(const std::vector<TrafficRow>& rows);
std::int64_t total_messages(const std::vector<TrafficRow>& rows);

/// Whether an op sends to one rank, or receives from one.
bool is_message(const program::Op& op);
/// Whether a message goes to, or comes from, a rank of this rank's node.
bool stays_on_node(const program::Program& program, const program::Op& op, int ranks_per_node);

/// Members of the group of `rank` over axes that are on its node, and all of them.
struct GroupPlace {
  int on_node = 1, members = 1;
};
GroupPlace place_of(const Coordinate& at, AxisSet axes, int ranks_per_node);

/// Returns the bytes that this rank sends out of its node in one collective or message. In a ring, the
/// members on a node share the bytes that leave it. All-to-all sends one part to each rank elsewhere. Sums of
/// 16-bit elements follow layout/sum_group.hpp. `place` is the place of the op's group.
double bytes_out_of_node(const program::Program& program, const program::Op& op, const GroupPlace& place,
                         int ranks_per_node);

}  // namespace ztrain::plan
