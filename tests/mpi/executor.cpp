// The executor on devices that run work later than it is issued: whatever legal order they choose, every op
// reads what it should; and what a dependency is missing from shows.

#include "engine/executor.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "engine/kernel_table.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/asynchronous_device.hpp"
#include "tests/support/fake_ops.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/programs.hpp"
#include "tests/support/random_program.hpp"
#include "tests/support/recording_device.hpp"
#include "tests/support/stuck_device.hpp"

namespace ztrain::executor_test {
namespace {

using engine::Graphs;
using program::OpId;
using program::Program;
using test::Carrier;
using test::session;

constexpr int programs = 12, seeds = 6, runs = 3;

Program random_program(unsigned seed, int ops = 60) {
  Program p = test::RandomProgram(seed, ops).program;
  program::link_dependencies(p);
  program::plan_lifetimes(p);
  program::plan_memory(p);
  program::verify_rank(p);
  return p;
}

/// What each op read, in each of several runs.
using Readings = std::vector<std::vector<std::uint64_t>>;

Readings readings(const Program& p, runtime::Device& device, Carrier carrier, Graphs graphs = Graphs::none,
                  bool poison = false, std::set<std::int64_t>* every = nullptr) {
  const engine::JobMemory memory({&p}, memory::Arena::Guards::off, device.memory(), device.staging());
  engine::Queues queues(device);
  runtime::Mesh mesh(session(), MeshShape{});
  test::FakeOps ops(device, carrier);
  engine::ExecutorOptions options;
  options.graphs = graphs;
  options.poison = poison;
  options.bind = [&](const engine::Binding& b) { return ops.bind(b); };
  options.fill = [&](kernels::Exec&, void* to, std::int64_t bytes, std::int64_t of) {
    if (every) every->insert(of);
    std::memset(to, 0xFF, static_cast<std::size_t>(bytes));
  };
  engine::Executor executor(p, memory, mesh, queues, options);
  executor.require_capturable();
  Readings all;
  for (int i = 0; i < runs; ++i) {
    executor.run();
    device.finish();
    all.push_back(ops.seen);
  }
  EXPECT_EQ(ops.carried, runs * ops.collectives) << "what is sent is counted by this";
  return all;
}

Readings expected(const Program& p) {
  return readings(p, *runtime::make_host_device(), Carrier::kernel);
}

class ExecutorOnDevices : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  /// Random programs under random orders.
  static void expect_same(Carrier carrier, Graphs graphs = Graphs::none, bool poison = false) {
    for (unsigned n = 0; n < programs; ++n) {
      const Program p = random_program(n);
      const Readings wanted = expected(p);
      for (std::uint64_t seed = 0; seed < seeds; ++seed)
        EXPECT_EQ(readings(p, *test::asynchronous_device(seed), carrier, graphs, poison), wanted)
            << "program " << n << ", seed " << seed;
    }
  }
};

TEST_F(ExecutorOnDevices, EveryOrderReadsTheSame) {
  expect_same(Carrier::kernel);
}

TEST_F(ExecutorOnDevices, WithCollectivesOfTheDevice) {
  expect_same(Carrier::device);
}

TEST_F(ExecutorOnDevices, WithCollectivesThatTheHostDrives) {
  expect_same(Carrier::host);
}

TEST_F(ExecutorOnDevices, WithPoison) {
  expect_same(Carrier::device, Graphs::none, true);
  expect_same(Carrier::host, Graphs::none, true);
}

TEST_F(ExecutorOnDevices, WithGraphsOfCompute) {
  expect_same(Carrier::device, Graphs::compute);
  expect_same(Carrier::host, Graphs::compute, true);
}

TEST_F(ExecutorOnDevices, WithTheStepAsOneGraph) {
  expect_same(Carrier::device, Graphs::step);
  expect_same(Carrier::kernel, Graphs::step, true);
}

TEST_F(ExecutorOnDevices, OneGraphNeedsCollectivesOfTheDevice) {
  const Program p = random_program(1);
  try {
    readings(p, *test::asynchronous_device(1), Carrier::host, Graphs::step);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("device.cuda_graphs = \"step\""), std::string::npos) << e.what();
  }
}

/// Each entry of `after` is needed, so leaving one out must show for some order.
TEST_F(ExecutorOnDevices, AMissingDependencyShows) {
  int dropped = 0, found = 0;
  for (unsigned n = 0; n < programs; ++n) {
    const Program whole = random_program(n);
    const Readings wanted = expected(whole);
    for (std::size_t op = 0; op < whole.ops.size(); op += 7) {
      if (whole.ops[op].after.empty() || whole.ops[op].type == "release") continue;
      Program broken = whole;
      broken.ops[op].after.clear();
      ++dropped;
      for (std::uint64_t seed = 0; seed < 40; ++seed)
        if (readings(broken, *test::asynchronous_device(seed), Carrier::device) != wanted) {
          ++found;
          break;
        }
    }
  }
  EXPECT_GT(dropped, 20);
  EXPECT_GE(found, dropped * 3 / 4) << "of " << dropped;
}

TEST_F(ExecutorOnDevices, EveryHazardIsOrderedByEvents) {
  for (unsigned n = 0; n < 30; ++n) {
    const Program p = random_program(n, 100);
    test::RecordingDevice device;
    {
      // Two runs: hazards between them are ordered too.
      const engine::JobMemory memory({&p});
      engine::Queues queues(device);
      runtime::Mesh mesh(session(), MeshShape{});
      test::FakeOps ops(device, Carrier::device);
      engine::ExecutorOptions options;
      options.bind = [&](const engine::Binding& b) { return ops.bind(b); };
      engine::Executor executor(p, memory, mesh, queues, options);
      executor.run();
      EXPECT_EQ(device.host_waits(), 0) << "the host waits within a step";
      executor.run();
      ASSERT_EQ(device.works().size(), 2 * p.ops.size());
    }
    struct Access {
      std::size_t work;
      std::int64_t begin, end;
      bool persistent, write;
    };
    std::vector<Access> accesses;
    for (std::size_t work = 0; work < device.works().size(); ++work) {
      const program::Op& op = p.ops[work % p.ops.size()];
      if (program::is_release(op)) continue;
      for (const bool write : {false, true})
        for (const program::TensorId t : write ? op.outputs : op.inputs) {
          const program::Tensor& storage = p.tensor(p.storage(t));
          const std::int64_t begin = storage.address + p.tensor(t).offset;
          accesses.push_back({work, begin, begin + p.tensor(t).bytes(), storage.persistent, write});
        }
    }
    for (const Access& a : accesses)
      for (const Access& b : accesses) {
        const bool conflict = a.work < b.work && a.persistent == b.persistent && (a.write || b.write) &&
                              a.begin < b.end && b.begin < a.end;
        ASSERT_TRUE(!conflict || device.before(a.work, b.work))
            << "program " << n << ": " << a.work << ", " << b.work;
      }
  }
}

TEST_F(ExecutorOnDevices, WorkspacesAloneArePoisonedInPart) {
  test::Builder b;
  const auto x = b.transient("x", 64), y = b.transient("y", 64);
  b.program.tensors[static_cast<std::size_t>(y)].category = program::Category::workspace;
  b.op("make", program::Stream::compute, {}, {x, y});
  b.finish();
  std::set<std::int64_t> every;  // bytes of which a line is filled
  readings(b.program, *runtime::make_host_device(), Carrier::kernel, Graphs::none, true, &every);
  EXPECT_EQ(every, (std::set<std::int64_t>{kernels::poison_line, kernels::poison_page}));
}

TEST_F(ExecutorOnDevices, WaitsThatAreImpliedAreLeftOut) {
  test::Builder b;
  const auto x = b.transient("x", 64), y = b.transient("y", 64), z = b.transient("z", 64);
  using program::Stream;
  b.op("make", Stream::compute, {}, {x});
  b.op("make", Stream::gather, {x}, {y});
  b.op("make", Stream::reduce, {x, y}, {z});
  b.program.ops[1].after = {0};
  b.program.ops[2].after = {0, 1};
  const auto order = engine::order_ops(b.program, {false, false, false});
  EXPECT_EQ(order.waits[2], std::vector<OpId>{1});
  EXPECT_EQ(order.signals, (std::vector<bool>{true, true, false}));
  const auto by_host = engine::order_ops(b.program, {false, true, false});
  EXPECT_EQ(by_host.settles[1], std::vector<OpId>{0});
  EXPECT_TRUE(by_host.waits[2].empty()) << "the host has waited for it";
}

/// Two runs of a program on a deferred device, and what they were timed to take.
std::array<engine::Timings, 2> timed_runs(const Program& p, engine::Graphs graphs, bool every_op) {
  const auto device = test::asynchronous_device(3);
  const engine::JobMemory memory({&p}, memory::Arena::Guards::off, device->memory());
  engine::Queues queues(*device);
  runtime::Mesh mesh(session(), MeshShape{});
  test::FakeOps ops(*device, Carrier::device);
  engine::ExecutorOptions options;
  options.timed = every_op;
  options.graphs = graphs;
  options.bind = [&](const engine::Binding& b) { return ops.bind(b); };
  engine::Executor executor(p, memory, mesh, queues, options);
  std::array<engine::Timings, 2> found;
  for (engine::Timings& timings : found) {
    executor.clear_timings();
    EXPECT_EQ(executor.timings().of(program::ActionKind::forward), 0);
    executor.run();
    device->finish();
    timings = executor.timings();
  }
  return found;
}

TEST_F(ExecutorOnDevices, TimesOpsByEvents) {
  for (const bool every_op : {false, true})
    for (const engine::Timings& timings : timed_runs(random_program(3), engine::Graphs::none, every_op)) {
      EXPECT_GT(timings.of(program::ActionKind::forward), 0);
      EXPECT_GT(timings.exposed_communication, 0);
      EXPECT_TRUE(timings.by_kind && timings.by_communication);
    }
}

TEST_F(ExecutorOnDevices, SaysWhereGraphsAreNotTimed) {
  int partly = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto [eager, step] = timed_runs(random_program(seed), engine::Graphs::step, false);
    EXPECT_TRUE(eager.by_kind && eager.by_communication) << "nothing is captured yet";
    EXPECT_FALSE(step.by_kind || step.by_communication);
    const engine::Timings compute = timed_runs(random_program(seed), engine::Graphs::compute, false)[1];
    EXPECT_TRUE(compute.by_communication);
    if (!compute.by_kind) ++partly;  // some have no two kernels in a row
  }
  EXPECT_GT(partly, 0);
}

TEST_F(ExecutorOnDevices, NotesOfOpsAreSaidOnce) {
  const Program p = random_program(3);
  const auto device = runtime::make_host_device();
  const engine::JobMemory memory({&p});
  engine::Queues queues(*device);
  runtime::Mesh mesh(session(), MeshShape{});
  engine::ExecutorOptions options;
  options.bind = [&](const engine::Binding& b) {
    engine::Bound bound{[] {}, nullptr};
    const auto id = &b.op - b.program.ops.data();
    if (id > 0) bound.notes.push_back({"odd", id % 2 == 1 ? "yes" : "no"});
    if (id == 7) bound.notes.push_back({"seven", "yes"});
    return bound;
  };
  const engine::Executor executor(p, memory, mesh, queues, options);
  EXPECT_EQ(executor.notes(), (std::vector<engine::Note>{{"odd", "yes"}, {"odd", "no"}, {"seven", "yes"}}));
}

/// GPUs have one good way for products; what is said is that one goes another.
TEST_F(ExecutorOnDevices, WarnsOfSlowProductsOnGpus) {
  struct Product : kernels::Gemm {
    explicit Product(bool slow) : is_slow(slow) {}
    void run(kernels::Exec&, const void*, const void*, const void*, void*, void*) override {}
    std::string implementation() const override { return is_slow ? "the loop" : "the library"; }
    bool slow() const override { return is_slow; }
    bool is_slow;
  };
  Program p = random_program(3);
  p.target = Target::cuda;
  const auto device = runtime::make_host_device();
  const engine::JobMemory memory({&p});
  engine::Queues queues(*device);
  runtime::Mesh mesh(session(), MeshShape{});
  engine::ExecutorOptions options;
  options.bind = [&](const engine::Binding& b) {
    return engine::Bound{[] {}, nullptr, engine::product_notes(b, Product(&b.op == &b.program.ops[2]))};
  };
  const engine::Executor executor(p, memory, mesh, queues, options);
  EXPECT_EQ(executor.notes(), (std::vector<engine::Note>{{"products", "the loop", true}}));
}

/// Four ops of one kind in a row, one of another and one on a queue beside them, that all take a while.
struct SlowOps {
  static constexpr std::chrono::milliseconds each{3};

  SlowOps() {
    using program::Stream;
    const auto x = b.persistent("x", 64);
    const program::Action forward{program::ActionKind::forward}, backward{program::ActionKind::backward};
    for (int i = 0; i < 4; ++i) b.op("make", Stream::compute, {x}, {x}, forward);
    b.op("make", Stream::compute, {x}, {x}, backward);
    b.op("make", Stream::gather, {x}, {x}, {program::ActionKind::gather});
    b.finish();
    options.bind = [](const engine::Binding&) {
      return engine::Bound{[] { std::this_thread::sleep_for(each); }, nullptr};
    };
  }

  test::Builder b;
  engine::ExecutorOptions options;
};

TEST_F(ExecutorOnDevices, OpsOfOneClockAreTimedTogether) {
  SlowOps ops;
  const auto device = test::asynchronous_device(3);
  const engine::JobMemory memory({&ops.b.program}, memory::Arena::Guards::off, device->memory());
  engine::Queues queues(*device);
  runtime::Mesh mesh(session(), MeshShape{});
  engine::Executor executor(ops.b.program, memory, mesh, queues, ops.options);
  executor.run();
  device->finish();
  const engine::Timings& timings = executor.timings();
  EXPECT_GE(timings.of(program::ActionKind::forward), 4 * 3e-3);
  EXPECT_GE(timings.of(program::ActionKind::backward), 3e-3);
  EXPECT_GE(timings.of(program::ActionKind::gather), 3e-3);
}

TEST_F(ExecutorOnDevices, SaysWhatADeviceIsAtThatDoesNotGoOn) {
  const auto at = [](int done) {
    SlowOps ops;
    test::StuckDevice device(test::asynchronous_device(3));
    const engine::JobMemory memory({&ops.b.program}, memory::Arena::Guards::off, device.memory());
    engine::Queues queues(device);
    runtime::Mesh mesh(session(), MeshShape{});
    engine::Executor executor(ops.b.program, memory, mesh, queues, ops.options);
    device.stop_after(done, std::chrono::hours(1));
    executor.run();
    EXPECT_EQ(executor.where(), "") << "nobody has asked the device";
    executor.observe();
    const std::string where = executor.where();
    executor.forget();
    EXPECT_EQ(executor.where(), "");
    return where;
  };
  const std::string all = "the host waits for the device: ";
  // Recorded in this order: fork; forward begins, ends; backward begins, ends.
  EXPECT_EQ(at(1).rfind(all + "compute is to begin forward", 0), 0u) << at(1);
  EXPECT_EQ(at(2).rfind(all + "compute is at forward", 0), 0u) << at(2);
  EXPECT_NE(at(2).find("of step 0 (op 0) to "), std::string::npos) << at(2);
  EXPECT_NE(at(2).find("of step 3 (op 3); gather is to begin gather"), std::string::npos) << at(2);
  EXPECT_EQ(at(3).rfind(all + "compute is to begin backward", 0), 0u) << at(3);
  EXPECT_EQ(at(100), all + "all that has clocks is done: what is left is in graphs, or copies");
}

TEST_F(ExecutorOnDevices, ZeroesGapsOfEveryTypeAndNothingElse) {
  for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
    test::Builder b;
    const program::TensorId t =
        b.program.add({.name = "gradient", .dtype = type, .shape = {512}, .persistent = true});
    b.program.op(b.op("zero_gaps", program::Stream::compute, {}, {t}))
        .attributes.set("pieces", std::vector<std::int64_t>{3, 5, 500, 12});
    b.finish();
    const auto device = runtime::make_host_device();
    const engine::JobMemory memory({&b.program}, memory::Arena::Guards::off, device->memory(),
                                   device->staging());
    engine::Queues queues(*device);
    runtime::Mesh mesh(session(), MeshShape{});
    engine::Executor executor(b.program, memory, mesh, queues, {});
    const auto width = static_cast<std::size_t>(size_of(type));
    std::vector<unsigned char> bytes(512 * width, 0x55), expected = bytes;
    for (const auto& [begin, count] : {std::pair<std::size_t, std::size_t>{3, 5}, {500, 12}})
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(begin * width), count * width, 0);
    memory.provider().write(memory.address(b.program, t), bytes.data(), std::ssize(bytes));
    executor.run();
    device->finish();
    memory.provider().read(bytes.data(), memory.address(b.program, t), std::ssize(bytes));
    EXPECT_EQ(bytes, expected) << name_of(type);
  }
}

}  // namespace
}  // namespace ztrain::executor_test
