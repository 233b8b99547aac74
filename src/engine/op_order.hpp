#pragma once
// Which ops wait for which on a device that runs them later: the fewest events that make Op::after hold.

#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::engine {

struct OpOrder {
  /// By op that the device runs: ops of other queues, run by the device too, that its queue must wait for.
  std::vector<std::vector<program::OpId>> waits;
  /// By op that the host drives: ops of the device that must be over before the host starts it, those of its
  /// own stream included.
  std::vector<std::vector<program::OpId>> settles;
  /// By op: some other op waits for it, or the host does.
  std::vector<bool> signals;
};

/// host_driven, by op: communications that the host drives. The host waits until they are over before it
/// issues an op that depends on them, so nothing on the device waits for them.
OpOrder order_ops(const program::Program& program, const std::vector<bool>& host_driven);

}  // namespace ztrain::engine
