#pragma once
// How long one op takes on a machine, by itself.
//   products        fixed + flops / (peak x efficiency x share of the multiprocessors that its tiles use)
//   attention       flops / (peak x efficiency of its direction and row length)
//   all else        fixed + bytes / (bandwidth x efficiency)
//   communication   start + hops x latency + bytes / link, over the slower of the links in the node and out
//   of
//                   it. Rings have a hop for each member but one; a sum of all elements takes the better of
//                   rings and trees (Thakur et al., "Optimization of Collective Communication Operations in
//                   MPICH", 2005, has both).
// A product that moves many bytes takes as long as these. What a machine file gives as measured goes first:
//   fixed + bytes x per_byte + flops x per_flop + hops x per_hop

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "plan/rates/machine.hpp"
#include "plan/rates/traffic.hpp"
#include "program/ir/program.hpp"

namespace ztrain::plan {

using BytesByTier = std::array<double, program::tier_count>;

/// Shares of the rows of buffers that experts' tokens are expected to fill, by the number of their rows: they
/// have room for more (experts.capacity), and loads are taken to be even.
using FilledRows = std::map<std::int64_t, double>;
FilledRows filled_rows(const program::Program& program);

/// Bytes that one op reads and writes, by tier: its operands without workspaces; what it updates in place,
/// twice.
BytesByTier bytes_touched(const program::Program& program, const program::Op& op,
                          const FilledRows& filled = {});

/// What an op does, as far as a measured rate depends on it. `place` is the place of a collective's group.
KernelWork kernel_work(const program::Program& program, const program::Op& op, const GroupPlace& place,
                       const FilledRows& filled = {});

/// Seconds of a message between two ranks.
double message_seconds(const program::Program& program, const program::Op& op, const Machine& machine);

/// Seconds for which a collective uses the links in the node and those out of it, and its latency besides.
struct LinkSeconds {
  double node = 0, network = 0, latency = 0;
  double all() const { return std::max(node, network) + latency; }
};

/// `place` is the place of the collective's group.
LinkSeconds collective_seconds(const program::Program& program, const program::Op& op,
                               const GroupPlace& place, const Machine& machine,
                               const FilledRows& filled = {});

/// Seconds of any op; a release takes none.
double duration_of(const program::Program& program, const program::Op& op, const Machine& machine,
                   const FilledRows& filled = {});

}  // namespace ztrain::plan
