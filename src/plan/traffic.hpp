#pragma once
// What one rank sends in one run of a Program, by axes and kind of collective, and copies between tiers.

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

}  // namespace ztrain::plan
