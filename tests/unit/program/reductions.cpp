// How gradients travel: what is summed over which ranks, how often, and in which type; and what neighbours
// keep between them of a gathered unit.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/small_job.hpp"

namespace ztrain::program::reductions_test {
namespace {

using test::small_model;
using test::spec_on;

/// Two replicas of two shards.
JobSpec replicated(const char* strategy, int micros, DType gradients = DType::f32,
                   DType reduce = DType::f32) {
  JobSpec spec = spec_on(2, 2, find_strategy(strategy), micros);
  spec.precision.gradients = gradients;
  spec.precision.reduce = reduce;
  return spec;
}

/// The reductions of a kind, by unit, in their order.
std::map<std::string, std::vector<Op>> reductions(const Program& p, CommKind kind) {
  std::map<std::string, std::vector<Op>> found;
  for (const Op& op : p.ops)
    if (op.comm.kind == kind && op.action.kind == ActionKind::reduce) found[op.name].push_back(op);
  return found;
}

TEST(Reductions, OfLaterMicroBatchesAddToTheSumOfThoseBefore) {
  for (const char* strategy : {"zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"}) {
    const Program p = compile(small_model(), replicated(strategy, 3), 1).train();
    const auto found = reductions(p, CommKind::reduce_scatter);
    ASSERT_EQ(found.size(), p.units.size()) << strategy;
    for (const auto& [unit, ops] : found) {
      ASSERT_EQ(ops.size(), 3u) << strategy << " " << unit;
      for (std::size_t micro = 0; micro < 3; ++micro) {
        const bool adds = micro > 0;
        EXPECT_EQ(ops[micro].attributes.integer("accumulate"), adds ? 1 : 0) << strategy << " " << unit;
        EXPECT_EQ(ops[micro].outputs[0], ops[0].outputs[0]) << "one accumulator";
        EXPECT_EQ(std::ranges::count(ops[micro].inputs, ops[0].outputs[0]), adds ? 1 : 0);
      }
    }
  }
}

TEST(Reductions, OverReplicasHappenOnceAStepBehindTheLastMicroBatch) {
  for (const Strategy& strategy : strategies())
    for (const bool every_micro : {true, false}) {
      JobSpec spec = replicated(std::string(strategy.name).c_str(), 3);
      spec.sharding.reduce.every_micro = every_micro;
      const Program p = compile(small_model(), spec, 3).train();
      const auto over_shards = reductions(p, CommKind::reduce_scatter),
                 over_replicas = reductions(p, CommKind::all_reduce);
      ASSERT_EQ(over_replicas.size(), p.units.size()) << strategy.name;
      for (const auto& [unit, ops] : over_replicas) {
        ASSERT_EQ(ops.size(), 1u) << strategy.name << " " << unit;
        EXPECT_EQ(ops[0].comm.axes, AxisSet(Axis::replicate));
        EXPECT_EQ(ops[0].action.micro, over_shards.at(unit).back().action.micro);
        EXPECT_EQ(ops[0].inputs[0], over_shards.at(unit).back().outputs[0]) << "the sum over shards";
        EXPECT_EQ(ops[0].inputs[0], ops[0].outputs[0]);
      }
    }
}

/// The types in which a unit's gradient goes over shards, comes out of that sum, and goes over replicas.
struct Types {
  DType sent, sum, over_replicas;
  bool operator==(const Types&) const = default;
};
Types types_of(DType gradients, DType reduce) {
  const Program p = compile(small_model(), replicated("FULL_SHARD", 2, gradients, reduce), 0).train();
  const Op scatter = reductions(p, CommKind::reduce_scatter).at("model.layers.0").back();
  const Op replicas = reductions(p, CommKind::all_reduce).at("model.layers.0").back();
  return {p.tensor(scatter.inputs[0]).dtype, p.tensor(scatter.outputs[0]).dtype,
          p.tensor(replicas.inputs[0]).dtype};
}

TEST(Reductions, SumsOfFp16GradientsNeverStandInFp16) {
  using enum DType;
  EXPECT_EQ(types_of(f16, f16), (Types{f16, f32, f32}));
  EXPECT_EQ(types_of(f16, f32), (Types{f16, f32, f32}));
  EXPECT_EQ(types_of(f32, f16), (Types{f16, f32, f16}))
      << "asked for: gradients have fp32's range, not reduce";
  EXPECT_EQ(types_of(bf16, bf16), (Types{bf16, bf16, bf16}));
  EXPECT_EQ(types_of(f32, bf16), (Types{bf16, f32, bf16}));
  EXPECT_EQ(types_of(f32, f32), (Types{f32, f32, f32}));
}

TEST(SecondaryShards, AreTheirRanksPartOfWhatTheNeighboursKeep) {
  JobSpec spec = spec_on(1, 6, find_strategy("FULL_SHARD"), 1);
  spec.mesh.inner_of(Axis::shard) = 3;
  spec.sharding.secondary_shards = true;
  for (int rank = 0; rank < 6; ++rank) {
    const Job job = compile(small_model(), spec, rank);
    int found = 0;
    for (const Op& op : job.train().ops) {
      if (op.type != "copy" || op.action.kind != ActionKind::release) continue;
      const Tensor& part = job.train().tensor(op.inputs[0]);
      const std::int64_t bytes = job.train().tensor(part.base).bytes() / 3;
      EXPECT_EQ(part.bytes(), bytes);
      EXPECT_EQ(part.offset, rank % 3 * bytes) << "rank " << rank << ", " << op.name;
      ++found;
    }
    EXPECT_EQ(found, 2) << "of both layers; embedding and head are gathered once";
  }
}

}  // namespace
}  // namespace ztrain::program::reductions_test
