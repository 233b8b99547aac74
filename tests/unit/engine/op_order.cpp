// Who waits for whom on a device that runs ops later than they are issued, some of them driven by the host.
#include "engine/op_order.hpp"

#include <gtest/gtest.h>

#include "tests/support/programs.hpp"

namespace ztrain::op_order_test {
namespace {

using engine::OpOrder;
using engine::order_ops;
using program::OpId;
using program::Program;
using program::Stream;

using Lists = std::vector<std::vector<OpId>>;

/// A kernel on the compute stream, one behind it on the gather stream, a communication there, and a kernel
/// that reads what arrived.
Program step() {
  test::Builder b;
  b.op("make", Stream::compute, {}, {});
  b.op("pack", Stream::gather, {}, {});
  b.communicate(program::CommKind::all_gather, Axis::shard, Stream::gather, {}, {});
  b.op("use", Stream::compute, {}, {});
  b.program.op(1).after = {0};
  b.program.op(3).after = {2};
  return b.program;
}

TEST(OpOrder, QueuesOfTheDeviceWaitForEachOther) {
  const OpOrder order = order_ops(step(), {false, false, false, false});
  EXPECT_EQ(order.waits, (Lists{{}, {0}, {}, {2}})) << "within a queue nothing needs to wait";
  EXPECT_EQ(order.settles, Lists(4));
  EXPECT_EQ(order.signals, (std::vector<bool>{true, false, true, false}));
}

TEST(OpOrder, TheHostWaitsForWhatItsCommunicationComesAfter) {
  const OpOrder order = order_ops(step(), {false, false, true, false});
  EXPECT_EQ(order.waits, (Lists{{}, {0}, {}, {}})) << "the host waits for its own communication";
  EXPECT_EQ(order.settles, (Lists{{}, {}, {1}, {}})) << "the kernel before it on its stream";
  EXPECT_EQ(order.signals, (std::vector<bool>{true, true, false, false}));
}

TEST(OpOrder, CommunicationsOfTheHostDoNotSettleEachOther) {
  Program p = step();
  p.op(1).comm.kind = program::CommKind::all_gather;
  const OpOrder order = order_ops(p, {false, true, true, false});
  EXPECT_EQ(order.settles, (Lists{{}, {0}, {}, {}}));
  EXPECT_EQ(order.waits, Lists(4));
}

}  // namespace
}  // namespace ztrain::op_order_test
