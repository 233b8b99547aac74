// The arithmetic of planning: simulated time of hand-made Programs, traffic, memory, and the classic formula.

#include "plan/step_time.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "layout/comm_cost.hpp"
#include "plan/cost.hpp"
#include "plan/memory.hpp"
#include "plan/rates/op_time.hpp"
#include "plan/rates/traffic.hpp"
#include "plan/zero_paper.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::plan::plan_test {
namespace {

using namespace program;
using test::Builder;

/// A second per 100 bytes of memory, per 1000 flops, per 10 bytes sent within a node of two and per 1 byte
/// out of it.
Machine slow_machine() {
  Machine m;
  m.ranks_per_node = 2;
  m.peak_flops = 2000, m.compute_efficiency = 0.5;
  m.memory_bandwidth = 200, m.memory_efficiency = 0.5;
  m.host_bandwidth = 20, m.host_memory_bandwidth = 40, m.nvme_bandwidth = 2;
  m.intra_node_bandwidth = 10, m.inter_node_bandwidth = 1;
  m.latency = 0;
  return m;
}

Machine free_machine() {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Machine m = slow_machine();
  m.peak_flops = m.memory_bandwidth = m.host_bandwidth = m.host_memory_bandwidth = infinity;
  return m;
}

OpId compute(Builder& b, double flops, ActionKind kind = ActionKind::forward) {
  const OpId id = b.op("linear", Stream::compute, {}, {}, {kind, 0, 0});
  b.program.op(id).flops = flops;
  return id;
}

OpId collective(Builder& b, std::int64_t sent, Stream stream = Stream::gather, AxisSet axes = Axis::shard,
                ActionKind kind = ActionKind::gather) {
  const OpId id = b.communicate(CommKind::all_gather, axes, stream, {}, {});
  b.program.op(id).comm.sent_bytes = sent;
  b.program.op(id).action.kind = kind;
  return id;
}

Builder on_mesh(int replicate, int shard, int rank = 0) {
  Builder b("train step", rank);
  b.program.mesh[Axis::replicate] = replicate;
  b.program.mesh[Axis::shard] = shard;
  return b;
}

double busy(const Simulation& s, Stream stream, ActionKind kind) {
  return s.busy[static_cast<std::size_t>(stream)][static_cast<std::size_t>(kind)];
}

TEST(Simulate, AStreamRunsItsOpsOneAfterTheOther) {
  Builder b;
  compute(b, 1000);
  compute(b, 3000, ActionKind::backward);
  const Simulation s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 4);
  EXPECT_DOUBLE_EQ(busy(s, Stream::compute, ActionKind::forward), 1);
  EXPECT_DOUBLE_EQ(busy(s, Stream::compute, ActionKind::backward), 3);
  EXPECT_DOUBLE_EQ(s.flops, 4000);
  EXPECT_DOUBLE_EQ(s.exposed, 0);
  EXPECT_EQ(s.critical, (std::vector<OpId>{0, 1}));
}

TEST(Simulate, StreamsOverlapUnlessADependencyForbidsIt) {
  Builder b = on_mesh(1, 2);
  collective(b, 30);  // 3 s
  compute(b, 5000);   // 5 s beside it
  const OpId needs_both = compute(b, 1000);
  b.program.op(needs_both).after = {0};
  Simulation s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 6);
  EXPECT_DOUBLE_EQ(s.exposed, 0) << "the collective ends before it is needed";
  b.program.op(1).after = {0};
  s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 9);
  EXPECT_DOUBLE_EQ(s.exposed, 3);
  EXPECT_DOUBLE_EQ(s.exposed_by[static_cast<std::size_t>(ActionKind::gather)], 3);
  EXPECT_EQ(s.critical, (std::vector<OpId>{0, 1, 2}));
  EXPECT_DOUBLE_EQ(s.critical_by[static_cast<std::size_t>(ActionKind::gather)], 3);
  EXPECT_DOUBLE_EQ(s.critical_by[static_cast<std::size_t>(ActionKind::forward)], 6);
}

TEST(Simulate, WhatEndsAfterTheLastComputationIsExposed) {
  Builder b = on_mesh(1, 2);
  compute(b, 1000);
  const OpId reduce = collective(b, 40, Stream::reduce, Axis::shard, ActionKind::reduce);
  b.program.op(reduce).after = {0};
  const Simulation s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 5);
  EXPECT_DOUBLE_EQ(s.exposed, 4);
  EXPECT_DOUBLE_EQ(s.exposed_by[static_cast<std::size_t>(ActionKind::reduce)], 4);
}

TEST(Simulate, CollectivesOfTwoStreamsShareTheLinks) {
  Builder b = on_mesh(1, 2);
  collective(b, 30);
  collective(b, 40, Stream::reduce, Axis::shard, ActionKind::reduce);
  const Simulation s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 7);
  EXPECT_DOUBLE_EQ(s.exposed, 7);
  EXPECT_EQ(s.critical, (std::vector<OpId>{0, 1}));
  Builder two = on_mesh(2, 2);
  collective(two, 30);
  collective(two, 4, Stream::reduce, Axis::replicate, ActionKind::reduce);
  EXPECT_DOUBLE_EQ(simulate(two.program, slow_machine()).seconds, 4) << "one in the node, one out of it";
  collective(two, 10, Stream::reduce, Axis::replicate | Axis::shard, ActionKind::reduce);
  EXPECT_DOUBLE_EQ(simulate(two.program, slow_machine()).seconds, 9) << "both links, when both are free";
}

TEST(Simulate, ACollectiveGoesBetweenOthersWhereItFits) {
  Builder b = on_mesh(1, 2);
  collective(b, 30);  // 0 to 3
  compute(b, 10000);  // 0 to 10
  const OpId reduce = collective(b, 40, Stream::reduce, Axis::shard, ActionKind::reduce);
  b.program.op(reduce).after = {1};  // 10 to 14
  collective(b, 70);                 // 3 to 10
  EXPECT_DOUBLE_EQ(simulate(b.program, slow_machine()).seconds, 14);
  collective(b, 10);  // no room any more before 14
  const Simulation s = simulate(b.program, slow_machine());
  EXPECT_DOUBLE_EQ(s.seconds, 15);
  EXPECT_EQ(s.critical, (std::vector<OpId>{1, reduce, 4}));
}

TEST(Simulate, WithFreeComputingADependentChainOfCollectivesTakesTheirSum) {
  Builder b = on_mesh(1, 2);
  double sum = 0;
  for (int i = 1; i <= 5; ++i) {
    const OpId gather = collective(b, 10 * i);
    if (gather > 0) b.program.op(gather).after = {gather - 1};
    const OpId use = compute(b, 1e9);
    b.program.op(use).after = {gather};
    sum += i;
  }
  const Simulation s = simulate(b.program, free_machine());
  EXPECT_DOUBLE_EQ(s.seconds, sum);
  EXPECT_DOUBLE_EQ(s.exposed, sum);
  const ByAction& gathering = s.busy[static_cast<std::size_t>(Stream::gather)];
  EXPECT_DOUBLE_EQ(std::accumulate(gathering.begin(), gathering.end(), 0.0), sum);
}

TEST(Simulate, AnOpIsBoundByFlopsOrByTheBytesOfTheSlowestTier) {
  Builder b;
  const TensorId x = b.transient("x", 100), y = b.transient("y", 100),
                 host = b.transient("h", 10, Tier::host);
  const OpId id = b.op("add", Stream::compute, {x}, {y});
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(id), slow_machine()), 8) << "800 bytes";
  b.program.op(id).flops = 9000;
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(id), slow_machine()), 9);
  const OpId fetch = b.op("copy", Stream::to_device, {host}, {x});
  b.program.tensor(x).shape = {10};
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(fetch), slow_machine()), 2)
      << "40 bytes over the host's link";
  const OpId release = b.release(y);
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(release), slow_machine()), 0);
  const TensorId reserved = b.program.add({.name = "ws", .shape = {9999}, .category = Category::workspace});
  const OpId with_workspace = b.op("add", Stream::compute, {y}, {y, reserved});
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(with_workspace), slow_machine()), 8)
      << "how much of a reservation is touched is not known";
}

/// By the host's memory alone, beside what the device computes; on CPU ranks the two are one processor.
TEST(Simulate, TheHostStepsByItsOwnMemoryAndBesideTheDevice) {
  Builder b;
  const TensorId state = b.transient("state", 100, Tier::host), x = b.transient("x", 100);
  const OpId step = b.op("step", Stream::host, {state}, {state}, {ActionKind::optimize, 0, -1});
  b.op("add", Stream::compute, {x}, {x});
  EXPECT_DOUBLE_EQ(duration_of(b.program, b.program.op(step), slow_machine()), 20) << "800 bytes";
  b.program.target = Target::cuda;
  EXPECT_DOUBLE_EQ(simulate(b.program, slow_machine()).seconds, 20);
  b.program.target = Target::cpu;
  EXPECT_DOUBLE_EQ(simulate(b.program, slow_machine()).seconds, 28);
}

TEST(Simulate, LinksDependOnWhereTheGroupLives) {
  // Four ranks on two nodes of two: shard 2 within a node, replicate 2 across.
  Builder b = on_mesh(2, 2);
  Machine m = slow_machine();
  const auto seconds = [&](AxisSet axes) {
    const OpId id = collective(b, 60, Stream::gather, axes);
    return duration_of(b.program, b.program.op(id), m);
  };
  EXPECT_DOUBLE_EQ(seconds(Axis::shard), 6) << "inside";
  EXPECT_DOUBLE_EQ(seconds(Axis::replicate), 60) << "across, one link";
  EXPECT_DOUBLE_EQ(seconds(Axis::replicate | Axis::shard), 30) << "across, the two links of a node";
  m.latency = 1;
  EXPECT_DOUBLE_EQ(seconds(Axis::shard), 7);
  EXPECT_DOUBLE_EQ(seconds(Axis::replicate | Axis::shard), 32) << "ceil(log2 4)";
  const GroupPlace place = place_of(Coordinate(b.program.mesh, 3), Axis::replicate | Axis::shard, 2);
  EXPECT_EQ(place.on_node, 2);
  EXPECT_EQ(place.members, 4);
}

TEST(Traffic, AddsUpToWhatTheOpsSend) {
  Builder b = on_mesh(2, 2);
  for (const std::int64_t bytes : {10, 10, 25}) collective(b, bytes);
  collective(b, 7, Stream::reduce, Axis::replicate);
  compute(b, 1);
  const auto rows = traffic_of(b.program);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(total_bytes(rows), 52);
  EXPECT_EQ(total_messages(rows), 4);
  for (const TrafficRow& row : rows) {
    std::int64_t bytes = 0, calls = 0;
    for (const auto& [size, count] : row.sizes) bytes += size * count, calls += count;
    EXPECT_EQ(bytes, row.bytes);
    EXPECT_EQ(calls, row.messages);
    EXPECT_EQ(row.members, 2);
  }
}

TEST(Traffic, OverInnerFactorsOfAxesHasRowsOfItsOwn) {
  Builder b = on_mesh(1, 4);
  b.program.mesh[Axis::context] = 4;
  b.program.mesh.inner_of(Axis::shard) = b.program.mesh.inner_of(Axis::context) = 2;
  collective(b, 10, Stream::gather, AxisSet::inner(Axis::shard));
  collective(b, 7, Stream::gather, AxisSet::inner(Axis::context));
  const auto rows = traffic_of(b.program);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].axes, AxisSet::inner(Axis::shard));
  EXPECT_EQ(rows[0].bytes, 10);
  EXPECT_EQ(rows[1].axes, AxisSet::inner(Axis::context));
  EXPECT_EQ(rows[1].bytes, 7);
}

TEST(Traffic, BetweenTiersIsThatOfCopiesAlone) {
  Builder b;
  const TensorId x = b.transient("x", 100), h = b.transient("h", 100, Tier::host),
                 n = b.transient("n", 100, Tier::nvme), y = b.transient("y", 100);
  b.op("copy", Stream::to_device, {h}, {x});
  b.op("copy", Stream::to_device, {h}, {x});
  b.op("copy", Stream::io, {h}, {n});
  b.op("copy", Stream::compute, {x}, {y});
  b.op("step", Stream::host, {h}, {h});
  const auto rows = tier_traffic_of(b.program);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].from, Tier::host);
  EXPECT_EQ(rows[0].to, Tier::device);
  EXPECT_EQ(rows[0].copies, 2);
  EXPECT_EQ(rows[0].bytes, 800);
  EXPECT_EQ(rows[1].to, Tier::nvme);
  EXPECT_EQ(rows[1].bytes, 400);
}

TEST(Traffic, OfEveryKindIsWhatTheOpSends) {
  for (const CommKind kind : {CommKind::all_gather, CommKind::reduce_scatter, CommKind::all_reduce,
                              CommKind::broadcast, CommKind::send, CommKind::all_to_all}) {
    Builder b = on_mesh(1, 2);
    b.program.op(collective(b, 40)).comm.kind = kind;
    EXPECT_EQ(total_bytes(traffic_of(b.program)), 40) << name_of(kind);
  }
}

TEST(Traffic, OfWhatIsRepeatedCountsEveryTime) {
  const auto of = [](int micros) {
    Builder b = on_mesh(1, 2);
    const TensorId x = b.transient("x", 100), h = b.transient("h", 100, Tier::host);
    collective(b, 100);
    for (int m = 0; m < micros; ++m) collective(b, 10), b.op("copy", Stream::to_device, {h}, {x});
    return b.program;
  };
  program::Program some = of(3);
  some.repeat = {3, 5, 18};
  const auto copies = tier_traffic_of(some);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].copies, 20);
  EXPECT_EQ(copies[0].bytes, 20 * 400);
  const auto found = traffic_of(some), expected = traffic_of(of(20));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sizes, expected[0].sizes);
  EXPECT_EQ(found[0].bytes, expected[0].bytes);
  EXPECT_EQ(found[0].messages, expected[0].messages);
}

TEST(Memory, RowsAreWhatIsKeptAndWhatLivesAtThePeak) {
  Builder b;
  const TensorId weight = b.persistent("w", 100), early = b.transient("early", 50),
                 peak = b.transient("peak", 80), host = b.transient("host", 7, Tier::host);
  b.op("copy", Stream::compute, {weight}, {early});
  b.op("copy", Stream::compute, {early}, {host});
  b.op("copy", Stream::compute, {weight, host}, {peak});
  b.finish();
  const auto rows = memory_rows(b.program);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].category, "parameters");
  EXPECT_EQ(rows[0].persistent_bytes, 400);
  EXPECT_EQ(rows[0].peak_bytes, 0);
  EXPECT_EQ(rows[1].category, "activations");
  EXPECT_EQ(rows[1].peak_bytes, 320);
  const auto on_host = memory_rows(b.program, Tier::host);
  ASSERT_EQ(on_host.size(), 1u);
  EXPECT_EQ(on_host[0].peak_bytes, 28);
}

TEST(Verdict, CountsWhatIsOutsideThePlan) {
  Cost c;
  program::TierPlan device;
  device.persistent_bytes = 60, device.transient_bytes = 30;
  c.memory.push_back({0, {{"train step", {device}, {}}}});
  c.ranks = 4;
  c.machine.ranks_per_node = 2;
  c.machine.device_memory = 100, c.machine.host_memory = 1e9;
  for (const double outside : {0, 10, 11}) {
    c.machine.outside_memory = outside;
    EXPECT_DOUBLE_EQ(verdict_of(c).device_needed, 90 + outside);
    EXPECT_EQ(verdict_of(c).fits(), outside <= 10) << outside;
  }
  c.machine.device_memory = 0, c.machine.outside_memory = 10;
  EXPECT_DOUBLE_EQ(verdict_of(c).node_needed, 200 + 2 * checkpoint_room)
      << "of two ranks, where all counts in the node";
}

TEST(ZeroPaper, GivesTheFiguresOfThePaper) {
  const auto gb = [](const char* strategy) {
    return zero_paper_bytes(70e9, config::find_strategy(strategy), 256) / 1e9;
  };
  EXPECT_DOUBLE_EQ(gb("NO_SHARD"), 1120);
  EXPECT_NEAR(gb("zero1"), 283.28, 0.005);
  EXPECT_NEAR(gb("zero2"), 143.83, 0.005);
  EXPECT_NEAR(gb("FULL_SHARD"), 4.38, 0.006);
  EXPECT_DOUBLE_EQ(gb("FULL_SHARD"), gb("SHARD_GRAD_OP"));
  EXPECT_EQ(zero_paper_floor(70e9, 80e9), 14);
  EXPECT_EQ(zero_paper_floor(1e9, 80e9), 1);
}

TEST(ZeroPaper, TheFloorIsNotEnoughOnceSomethingIsBesideTheStates) {
  const auto rows = zero_paper_sizes(70e9, 80e9, 18e9, 8);
  ASSERT_EQ(rows.size(), 3u);
  const struct {
    std::int64_t ranks;
    double gb;
    bool fits;
  } expected[] = {{16, 88.0, false}, {24, 64.7, true}, {32, 53.0, true}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].ranks, expected[i].ranks);
    EXPECT_NEAR(rows[i].bytes / 1e9, expected[i].gb, 0.05);
    EXPECT_EQ(rows[i].fits, expected[i].fits);
  }
  const std::string text = zero_paper_text({.parameters = 70e9, .ranks = 256, .beside_bytes = 18e9});
  for (const char* figure : {"1120.00 GB", "283.28 GB", "143.83 GB", "4.38 GB", "88.00 GB", "fills 14 "})
    EXPECT_NE(text.find(figure), std::string::npos) << figure << "\n" << text;
}

}  // namespace
}  // namespace ztrain::plan::plan_test
