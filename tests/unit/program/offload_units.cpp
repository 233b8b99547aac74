// Which units and which of their gradients offload sends away: alike on all ranks that must agree, and only
// where something is away.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "program/jobs/compile.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/offload.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::offload_units_test {
namespace {

using test::refusal;

Tier tier_of(const Program& p, TensorId id) {
  return p.tensor(p.storage(id)).tier;
}

bool evicts_gradient(const Program& p, const Op& op) {
  return op.action.kind == ActionKind::evict && p.tensor(op.inputs[0]).category == Category::gradient;
}

/// Schedules that compute gradients of weights late: copies carry those of some parameters of a unit.
JobSpec spec_of_stages(const char* schedule) {
  JobSpec spec = test::spec_on(2, 1, find_strategy("zero2"), 4);
  spec.mesh[Axis::pipeline] = 2;
  spec.schedule = find_schedule(schedule);
  spec.offload.gradients = {Tier::host, 1};
  return spec;
}

TEST(Offload, GradientsOfAUnitMayComeAtDifferentMoments) {
  for (const char* schedule : {"1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "dualpipe-v"})
    EXPECT_EQ(refusal([&] { verify_job(test::small_model(4), spec_of_stages(schedule)); }), "") << schedule;
}

TEST(BrokenOffload, AGradientThatIsCopiedToAnotherParameterIsRefused) {
  JobSpec spec = spec_of_stages("zb-h1");
  spec.program_passes.emplace_back([](Program& p) {
    std::vector<Op*> evictions;  // of some parameters of one unit
    for (Op& op : p.ops)
      if (evicts_gradient(p, op) && p.tensor(op.outputs[0]).base != no_tensor &&
          (evictions.empty() || p.storage(evictions[0]->outputs[0]) == p.storage(op.outputs[0])))
        evictions.push_back(&op);
    if (evictions.size() < 2) return;
    const auto other = std::ranges::find_if(evictions, [&](const Op* op) {
      return p.tensor(op->outputs[0]).offset != p.tensor(evictions[0]->outputs[0]).offset;
    });
    if (other != evictions.end())
      p.tensor(evictions[0]->outputs[0]).offset = p.tensor((*other)->outputs[0]).offset;
  });
  const std::string message = refusal([&] { compile(test::small_model(4), spec, 0); });
  EXPECT_NE(message, "");
  EXPECT_NE(message.find("(a defect of ztrain"), message.npos) << message;
  EXPECT_NE(message.find("; meanwhile change offload.*, or pipeline.schedule, or mesh.pipeline"),
            message.npos)
      << message;
}

TEST(Offload, SomeOfTheUnitsThatAreGatheredTogetherMayBeAway) {
  model::Graph graph = test::small_model(4);
  for (std::size_t i = 0; i < graph.parameters.size(); i += 2) graph.parameters[i].trainable = false;
  OffloadOptions options;
  options.parameters = {Tier::host, 0.5};
  JobSpec spec = test::spec_on(1, 1, find_strategy("FULL_SHARD"));
  spec.offload = options;
  spec.units.granularity = UnitGranularity::model;
  EXPECT_EQ(refusal([&] { verify_job(graph, spec); }), "");
  const Program p = compile(graph, spec, 0).train();
  int fetched = 0;
  for (const Op& op : p.ops)
    if (op.action.kind == ActionKind::gather) {
      EXPECT_EQ(tier_of(p, op.inputs[0]), Tier::host) << "what is at home on the device is used there";
      ++fetched;
    }
  EXPECT_GT(fetched, 0);
}

/// Five heads on two ranks: their parts of a unit differ in size.
TEST(Offload, RanksOfUnequalPartsSendTheSameUnitsAway) {
  JobSpec spec = test::spec_on(1, 2, find_strategy("FULL_SHARD"), 2);
  spec.mesh[Axis::tensor] = 2;
  spec.tensor = model::decoder_tensor_plan(test::small_dims(6, false), 2);
  for (const double fraction : {0.3, 0.5, 0.7}) {
    spec.offload.parameters = spec.offload.gradients = {Tier::host, fraction};
    EXPECT_EQ(refusal([&] { verify_job(test::small_model(6), spec); }), "") << fraction;
    std::vector<std::vector<std::string>> away_on;  // by rank of the tensor axis
    for (int rank = 0; rank < 2; ++rank) {
      const Job job = compile(test::small_model(6), spec, rank);
      away_on.emplace_back();
      for (const UnitState& unit : job.tensors.units)
        if (tier_of(job.train(), unit.parameters.slice) == Tier::host)
          away_on.back().push_back(job.train().tensor(unit.parameters.slice).name);
    }
    EXPECT_FALSE(away_on[0].empty()) << fraction;
    EXPECT_EQ(away_on[0], away_on[1]) << fraction;
  }
}

}  // namespace
}  // namespace ztrain::program::offload_units_test
