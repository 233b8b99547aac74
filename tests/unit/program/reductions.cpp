// How gradients travel: what is summed over which ranks, how often, and in which type; and what neighbours
// keep between them of a gathered unit.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "kernels/dequantize/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/step/record.hpp"
#include "model/tensor_plan.hpp"
#include "program/passes/final_passes.hpp"
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

/// In which types a unit's gradient goes from rank to rank, and in which those stand that are made of it
/// there.
struct Types {
  std::set<DType> over_shards, over_replicas, between_stages, sums;
};
Types types_of(const Program& p, int unit) {
  Types types;
  const auto type = [&](TensorId t) { return p.tensor(t).dtype; };
  for (const Op& op : p.ops) {
    if (op.action.part != unit) continue;
    const bool reduces = op.action.kind == ActionKind::reduce;
    if (op.comm.kind == CommKind::reduce_scatter) {
      types.over_shards.insert(type(op.inputs[0]));
      types.sums.insert(type(op.outputs[0]));
    }
    if (op.comm.kind == CommKind::all_reduce && reduces) types.over_replicas.insert(type(op.inputs[0]));
    if (op.comm.kind == CommKind::send && op.action.micro < 0)
      types.between_stages.insert(type(op.inputs[0]));
    if (op.comm.kind == CommKind::recv && op.action.micro < 0)
      types.between_stages.insert(type(op.outputs[0]));
    if (op.type == Add::op && reduces)
      for (const TensorId t : {op.inputs[0], op.inputs[1], op.outputs[0]}) types.sums.insert(type(t));
    if (op.type == SumSquares::op) types.sums.insert(type(op.inputs[SumSquares::gradient]));
    if (op.type == OptimizerStep::op) types.sums.insert(type(op.inputs[OptimizerStep::gradient]));
  }
  return types;
}

/// The unit of which two stages have a copy.
int tied_unit(const Program& p) {
  const auto send = std::ranges::find_if(
      p.ops, [](const Op& op) { return op.comm.kind == CommKind::send && op.action.micro < 0; });
  return send == p.ops.end() ? -1 : send->action.part;
}

void expect_types(const Program& p, int unit, const JobSpec& spec, bool of_two_stages) {
  const auto [gradients, reduce] = std::pair(spec.precision.gradients, spec.precision.reduce);
  const bool shards = spec.mesh[Axis::shard] > 1, replicas = spec.mesh[Axis::replicate] > 1;
  const auto narrower = [](DType a, DType b) { return size_of(b) < size_of(a) ? b : a; };
  DType sum = gradients;
  if (shards || replicas || of_two_stages)
    sum = gradients == DType::f16 ? DType::f32 : size_of(reduce) > size_of(gradients) ? reduce : gradients;
  using Set = std::set<DType>;
  const auto only_if = [](bool any, DType type) { return any ? Set{type} : Set{}; };
  const Types types = types_of(p, unit);
  EXPECT_EQ(types.sums, Set{sum});
  EXPECT_EQ(types.over_shards, only_if(shards, narrower(gradients, reduce)));
  EXPECT_EQ(types.over_replicas, only_if(replicas, gradients == DType::f16 ? sum : narrower(sum, reduce)));
  EXPECT_EQ(types.between_stages, only_if(of_two_stages, sum));
}

/// Sums are kept in the wider of the types of gradients and of reduce, and never in fp16 if gradients are
/// fp16. They go over shards and replicas in the narrower, and between stages as they are kept.
TEST(Reductions, HaveTheirTypesOverEachKindOfRanks) {
  using enum DType;
  constexpr std::pair<DType, DType> pairs[] = {{f16, f16},  {f16, f32},  {f32, f16}, {bf16, bf16},
                                               {bf16, f32}, {f32, bf16}, {f32, f32}};
  for (const auto& [gradients, reduce] : pairs)
    for (const int replicate : {1, 2})
      for (const int shard : {1, 2})
        for (const int stages : {1, 2}) {
          JobSpec spec = spec_on(replicate, shard, find_strategy(shard > 1 ? "FULL_SHARD" : "NO_SHARD"));
          spec.precision.gradients = gradients;
          spec.precision.reduce = reduce;
          spec.mesh[Axis::pipeline] = stages;
          if (stages > 1) spec.schedule = find_schedule("1f1b");
          const Program p = compile(small_model(2, stages > 1), spec, spec.mesh.ranks() - 1).train();
          SCOPED_TRACE(testing::Message() << name_of(gradients) << ", reduce " << name_of(reduce) << ", mesh "
                                          << spec.mesh.describe());
          const auto layer = std::ranges::find(p.units, "model.layers.1");
          expect_types(p, static_cast<int>(layer - p.units.begin()), spec, false);
          if (stages > 1) expect_types(p, tied_unit(p), spec, true);
        }
}

/// Every change of what a unit says of its axes is noticed.
TEST(Reductions, OverOtherAxesThanTheUnitSaysAreRefused) {
  struct OtherAxes {
    void (*plant)(UnitCut&);
    const char *says, *over;
  };
  constexpr OtherAxes planted[] = {
      {[](UnitCut& cut) { cut.reduce_axes = cut.reduce_axes.without(Axis::context); },
       "is summed, and its unit says otherwise", "over context"},
      {[](UnitCut& cut) { cut.reduce_axes = cut.reduce_axes | Axis::tensor; },
       "is not summed, and its unit says otherwise", "over tensor"},
      {[](UnitCut& cut) { cut.shard_axes = Axis::shard; }, "it gathers", "over shard"},
      {[](UnitCut& cut) { cut.shard_axes = cut.shard_axes | Axis::replicate; }, "it gathers", "over shard"}};
  JobSpec spec = replicated("FULL_SHARD", 1);
  spec.mesh[Axis::context] = spec.mesh[Axis::tensor] = 2;
  spec.tensor = model::decoder_tensor_plan(test::small_dims(2, false), 2);
  const Program step = compile(small_model(), spec, 0).train();
  const auto unit = at(std::ranges::find(step.units, "model.layers.0") - step.units.begin());
  for (const OtherAxes& fault : planted) {
    Program broken = step;
    fault.plant(broken.unit_cuts.at(unit));
    const std::string said = test::refusal([&] { verify_placements(broken); });
    EXPECT_NE(said.find(fault.says), std::string::npos) << said;
    EXPECT_NE(said.find(fault.over), std::string::npos) << said;
  }
}

/// Two replicas of four shards on nodes of two ranks: codes go within nodes, and then between them. Planted:
/// each exchange and each sum left out, or over other ranks.
TEST(Reductions, AFaultInAnExchangeOfCodesIsRefused) {
  JobSpec spec = spec_on(2, 4, find_strategy("FULL_SHARD"), 2);
  spec.mesh.per_node = spec.mesh.inner_of(Axis::shard) = 2;
  spec.sharding.reduce.code_bits = 4;
  EXPECT_EQ(test::refusal([&] { verify_job(small_model(), spec); }), "");
  const Program good = compile(small_model(), spec, 5).train();
  const AxisSet near = inner_axes(state_axes), far = AxisSet::outer(Axis::shard);
  int planted = 0;
  for (std::size_t i = 0; i < good.ops.size(); ++i) {
    const bool sums = good.ops[i].type == SumCodes::op;
    if (!sums && good.ops[i].comm.kind != CommKind::all_to_all) continue;
    const AxisSet now =
        sums
            ? AxisSet::from_bits(static_cast<std::uint32_t>(record_of<SumCodes>(good.ops[i].attributes).axes))
            : good.ops[i].comm.axes;
    ASSERT_TRUE(now == near || now == far) << to_string(now);
    for (const AxisSet axes : {near, far, state_axes, AxisSet(Axis::replicate), AxisSet()}) {
      if (axes == now) continue;
      Program bad = good;
      if (axes.empty())
        bad.ops[i].type = "copy", bad.ops[i].comm = {};
      else if (sums)
        edit<SumCodes>(bad.ops[i].attributes, [&](SumCodes& sum) { sum.axes = axes.bits(); });
      else
        bad.ops[i].comm.axes = axes;
      EXPECT_NE(test::refusal([&] { verify_placements(bad); }), "")
          << describe(good, static_cast<OpId>(i)) << " over " << to_string(axes);
      ++planted;
    }
  }
  EXPECT_EQ(planted, 4 * 4 * 2 * static_cast<int>(good.units.size())) << "of each unit and micro-batch";
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
