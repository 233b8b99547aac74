// What a machine's nodes, multiprocessors and launches do to the simulated time of hand-made Programs.
#include <gtest/gtest.h>

#include "plan/rates/op_time.hpp"
#include "plan/step_time.hpp"
#include "program/ops/emit.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::plan::plan_machine_test {
namespace {

using namespace program;
using test::Builder;

TEST(Simulate, SumsOf16BitsLeaveTheNodeOncePerNode) {
  const auto seconds = [](DType in, int per_node, int ranks = 16) {
    Builder b;
    b.program.mesh[Axis::shard] = ranks;
    b.program.mesh.per_node = per_node;
    const TensorId full = b.transient("full", ranks * 30), shard = b.transient("shard", 30);
    b.program.tensor(full).dtype = b.program.tensor(shard).dtype = in;
    program::emit_reduce_scatter(b.program, "sum", {full}, shard, Axis::shard, false, {});
    Machine m;
    m.inter_node_bandwidth = 1, m.latency = 0;
    if (per_node > 0) m.ranks_per_node = per_node;
    return duration_of(b.program, b.program.ops.back(), m);
  };
  EXPECT_DOUBLE_EQ(seconds(DType::bf16, 8), 30 * 4) << "a partial sum in fp32 for the other node";
  EXPECT_DOUBLE_EQ(seconds(DType::bf16, 1, 2), 30 * 2) << "a rank on each node";
  EXPECT_DOUBLE_EQ(seconds(DType::bf16, 4, 6), 30 * 2 * 2) << "nodes of four and of two";
  EXPECT_DOUBLE_EQ(seconds(DType::bf16, 0), 30 * 2 * 15 / 8.0) << "a ring, which NCCL's own sums are";
  EXPECT_DOUBLE_EQ(seconds(DType::f32, 8), 30 * 4 * 15 / 8.0) << "a ring";
}

TEST(Machine, CommunicationTakesMultiprocessors) {
  config::Device options;
  options.nccl_max_ctas = 16, options.nccl_max_ctas_pairs = 4;
  MeshShape mesh;
  EXPECT_EQ(product_multiprocessors(132, mesh, options), 0) << "one rank: all";
  mesh[Axis::pipeline] = 2;
  EXPECT_EQ(product_multiprocessors(132, mesh, options), 128) << "pairs alone";
  mesh[Axis::tensor] = 2;
  EXPECT_EQ(product_multiprocessors(132, mesh, options), 116);
  EXPECT_EQ(product_multiprocessors(0, mesh, options), 0) << "no GPU";
  options.nccl_max_ctas = 0;
  EXPECT_EQ(product_multiprocessors(132, mesh, options), 0) << "unknown";
}

TEST(Simulate, ComputesOnWhatCommunicationLeavesAndIsLaunchedByAHost) {
  Builder b;
  for (int i = 0; i < 3; ++i) b.program.op(b.op("linear", Stream::compute, {}, {})).flops = 1000;
  b.finish();
  Machine m;
  m.peak_flops = 1000, m.compute_efficiency = 1;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 3);
  m.computing_share = 0.5;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 6);
  m.launch = 1;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 7) << "the first op is issued for a second";
  m.launch = 5;
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 17) << "three launches, and the last op";
  EXPECT_DOUBLE_EQ(simulate(b.program, m).exposed, 0)
      << "waiting for a launch is not waiting for communication";
}

TEST(Simulate, ARankOnCoresMovesItsCollectivesItself) {
  Builder b;
  b.program.mesh[Axis::shard] = 2;
  const TensorId shard = b.transient("shard", 100), full = b.transient("full", 200),
                 y = b.transient("y", 100);
  b.program.op(b.communicate(CommKind::all_gather, Axis::shard, Stream::gather, {shard}, {full}))
      .comm.sent_bytes = 400;
  b.op("scale", Stream::compute, {y}, {y});
  Machine m;
  m.latency = 0, m.intra_node_bandwidth = 100;
  m.rates.kernels = {{"all_gather", {1, 0.01, 0, 2}}, {"scale.fp32", {5, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(simulate(b.program, m).seconds, 1 + 4 + 2) << "the kernel runs beside it";
  m.rates.cores = 1;
  const Simulation step = simulate(b.program, m);
  EXPECT_DOUBLE_EQ(step.seconds, 1 + 4 + 2 + 5);
  EXPECT_DOUBLE_EQ(step.computing, 5);
  EXPECT_DOUBLE_EQ(step.moving, 7);
  m.rates.kernels = {{"scale", {3, 0, 0, 0}}, {"other", {100, 0, 0, 0}}};
  EXPECT_DOUBLE_EQ(simulate(b.program, m).computing, 3) << "of the type, where its dtype was not measured";
  m.rates.kernels.erase("scale");
  EXPECT_DOUBLE_EQ(simulate(b.program, m).computing, 100);
}

}  // namespace
}  // namespace ztrain::plan::plan_machine_test
