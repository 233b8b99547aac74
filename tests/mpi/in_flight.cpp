// Which communications of a stream, where the host drives them, are under way at once.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/executor.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::in_flight_test {
namespace {

using test::session;

class InFlight : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

/// Writes down when it is started and waited for, and is never done before.
class Logged final : public runtime::Collective {
 public:
  Logged(std::string name, std::string& log, bool alone) : name_(std::move(name)), log_(log), alone_(alone) {}
  bool shares_memory() const override { return alone_; }
  void start() override {
    log_ += "+" + name_;
    under_way_ = true;
  }
  bool test() override { return !under_way_; }
  void wait() override {
    if (std::exchange(under_way_, false)) log_ += "-" + name_;
  }

 private:
  std::string name_;
  std::string& log_;
  bool alone_, under_way_ = false;
};

/// Communications that the host drives: a and b of other tensors, c of what a gives, d into what b reads,
/// then a kernel that needs d.
std::string order_of_messages(bool alone) {
  using program::Stream;
  test::Builder b;
  const auto tensor = [&](const char* name) { return b.persistent(name, 8); };
  const auto x = tensor("x"), y = tensor("y"), u = tensor("u"), v = tensor("v"), w = tensor("w");
  b.op("a", Stream::exchange, {x}, {u});
  b.op("b", Stream::exchange, {y}, {v});
  b.op("c", Stream::exchange, {u}, {w});
  b.op("d", Stream::exchange, {x}, {y});
  b.op("k", Stream::compute, {y}, {x});
  b.op("e", Stream::exchange, {v}, {u});
  b.finish();
  std::string log;
  engine::ExecutorOptions options;
  options.bind = [&](const engine::Binding& op) -> engine::Bound {
    if (op.op.stream == Stream::compute) return {[&log] { log += " k "; }, nullptr};
    return {nullptr, std::make_unique<Logged>(op.op.type, log, alone)};
  };
  const auto device = runtime::make_host_device();
  const engine::JobMemory memory({&b.program}, memory::Arena::Guards::off, device->memory(),
                                 device->staging());
  engine::Queues queues(*device);
  runtime::Mesh mesh(session(), MeshShape{});
  engine::Executor executor(b.program, memory, mesh, queues, options);
  executor.run();
  return log;
}

TEST_F(InFlight, MessagesThatHaveNothingInCommonAreUnderWayTogether) {
  EXPECT_EQ(order_of_messages(false), "+a+b-a+c-b+d-c-d k +e-e");
  EXPECT_EQ(order_of_messages(true), "+a-a+b-b+c-c+d-d k +e-e");
}

}  // namespace
}  // namespace ztrain::in_flight_test
