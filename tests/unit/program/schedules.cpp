// Schedules as data: which lists are steps, what a step does that follows one, and the messages of its ranks.

#include "program/schedules/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/shape.hpp"
#include "model/fp8.hpp"
#include "model/lora.hpp"
#include "program/loops/repeat.hpp"
#include "program/ops/op_type.hpp"
#include "program/schedules/pipeline_steps.hpp"
#include "tests/support/schedules.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::schedules_test {
namespace {

using test::other_schedules;

std::vector<Turn> list(const Schedule& s, int micro_batches) {
  return s.turns({.micro_batches = micro_batches});
}

TEST(Schedules, OfTheTableAndOfTestsAreSteps) {
  for (const int micros : {1, 2, 3, 7}) {
    EXPECT_EQ(fault_of(list(find_schedule("sequential"), micros), 1, micros), "");
    for (const Schedule& s : other_schedules)
      EXPECT_EQ(fault_of(list(s, micros), s.chunks, micros), "") << s.name;
  }
  EXPECT_EQ(
      test::refusal([] { find_schedule("backwards"); }),
      "there is no schedule 'backwards'; there is 'sequential', 'gpipe', '1f1b', 'interleaved', 'zb-h1', "
      "'zb-h2', 'zb-v', 'v-half', 'v-min', 'dualpipe-v'");
}

TEST(Schedules, ListsThatAreNoStepsAreRefused) {
  const auto fault = [](auto spoil) {
    std::vector<Turn> turns = test::staggered(3, 2, 1, 1);
    spoil(turns);
    return fault_of(turns, 2, 3);
  };
  const auto find = [](std::vector<Turn>& turns, const Turn& turn) { return std::ranges::find(turns, turn); };
  const Turn forward{TurnKind::forward, 1, 1}, inputs{TurnKind::backward_inputs, 0, 1};
  EXPECT_EQ(fault([&](auto& t) { t.push_back(forward); }),
            "forward of chunk 1, micro-batch 1 comes too early, or a second time");
  EXPECT_EQ(fault([&](auto& t) { t.erase(find(t, forward)); }),
            "backward for inputs of chunk 1, micro-batch 1 comes too early, or a second time");
  EXPECT_EQ(fault([&](auto& t) { std::iter_swap(find(t, forward), find(t, forward) - 1); }),
            "forward of chunk 1, micro-batch 1 comes before that of the chunk it continues");
  EXPECT_EQ(fault([&](auto& t) { std::iter_swap(find(t, inputs), find(t, inputs) - 1); }),
            "backward for inputs of chunk 0, micro-batch 1 comes before that of the chunk it continues");
  EXPECT_EQ(fault([&](auto& t) { t.pop_back(); }), "chunk 0 of micro-batch 2 is not done at the end");
  EXPECT_EQ(fault([&](auto& t) { t[0].chunk = 2; }),
            "forward of chunk 2, micro-batch 0 is of no chunk or of no micro-batch of the step");
  EXPECT_EQ(fault([&](auto& t) { t[0].micro = -1; }),
            "forward of chunk 0, micro-batch -1 is of no chunk or of no micro-batch of the step");
  EXPECT_EQ(fault([](auto& t) {
              for (Turn& turn : t)
                if (turn == Turn{TurnKind::backward_inputs, 1, 1}) turn.kind = TurnKind::backward;
            }),
            "backward of chunk 1, micro-batch 1 overtakes another micro-batch's half for weights");
  std::vector<Turn> late = test::staggered(2, 1, 0, 2);
  std::iter_swap(late.end() - 1, late.end() - 2);
  EXPECT_EQ(fault_of(late, 1, 2),
            "backward for weights of chunk 0, micro-batch 1 overtakes another micro-batch's");
}

/// The turns that a Program was expanded from, as far as its ops tell.
std::vector<std::pair<ActionKind, int>> turns_in(const Program& p) {
  std::vector<std::pair<ActionKind, int>> turns;
  for (const Op& op : p.ops) {
    const Action& a = op.action;
    if (a.kind != ActionKind::forward && a.kind != ActionKind::backward) continue;
    if (turns.empty() || turns.back() != std::pair(a.kind, a.micro)) turns.emplace_back(a.kind, a.micro);
  }
  return turns;
}

TEST(Schedules, TheStepFollowsTheList) {
  JobSpec spec = test::spec_on(1, 2, find_strategy("FULL_SHARD"), 3);
  using enum ActionKind;
  using List = std::vector<std::pair<ActionKind, int>>;
  EXPECT_EQ(turns_in(compile(test::small_model(), spec, 0).train()),
            (List{{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}, {forward, 2}, {backward, 2}}));
  spec.schedule = other_schedules[0];
  EXPECT_EQ(turns_in(compile(test::small_model(), spec, 0).train()),
            (List{{forward, 0}, {forward, 1}, {forward, 2}, {backward, 0}, {backward, 1}, {backward, 2}}));
  spec.schedule = other_schedules[2];
  EXPECT_EQ(turns_in(compile(test::small_model(), spec, 0).train()),
            (List{{forward, 0},
                  {forward, 1},
                  {backward, 0},
                  {forward, 2},
                  {backward, 1},
                  {backward, 2},  // its half for inputs, then three for weights
                  {backward, 0},
                  {backward, 1},
                  {backward, 2}}));
}

/// No ops are lost and none are added, whatever the order; every strategy is proven in each of them.
TEST(Schedules, ComputeTheSameInAnyOrder) {
  for (const Strategy& strategy : strategies()) {
    if (strategy.within_node) continue;
    for (const bool every_micro : {false, true}) {
      JobSpec spec = test::spec_on(1, 2, strategy, 4);
      spec.sharding.reduce.every_micro = every_micro;
      spec.recompute.every = every_micro ? 2 : 0;
      spec.every_micro_batch = true;
      const double flops = flops_of(compile(test::small_model(4, true), spec, 0).train());
      for (const Schedule& schedule : other_schedules) {
        SCOPED_TRACE(testing::Message()
                     << strategy.name << ", " << schedule.name << ", every " << every_micro);
        spec.schedule = schedule;
        const Job job = compile(test::small_model(4, true), spec, 0);
        EXPECT_DOUBLE_EQ(flops_of(job.train()), flops);
        EXPECT_EQ(test::refusal([&] { verify_job(test::small_model(4, true), spec, job); }), "");
      }
    }
  }
}

/// The half for inputs does not hold what weights alone need: that is all of the products for weights, and
/// nothing that a gradient of an activation comes of.
TEST(Schedules, HalvesAreWhatTheirRowsSay) {
  JobSpec spec = test::spec_on(1, 1, find_strategy("NO_SHARD"), 1);
  spec.schedule = other_schedules[3];
  const auto check = [&](const model::Graph& graph, const std::set<std::string>& expected) {
    const Program p = compile(graph, spec, 0).train();
    std::vector<std::string> backward;
    for (const Op& op : p.ops)
      if (op.action.kind == ActionKind::backward) backward.push_back(op.type);
    const auto for_weights = [](const std::string& type) { return op_type(type).for_weights; };
    const auto half = std::ranges::find_if(backward, for_weights);
    EXPECT_NE(half, backward.end());
    EXPECT_TRUE(std::all_of(half, backward.end(), for_weights));
    EXPECT_EQ(std::set<std::string>(half, backward.end()), expected);
  };
  check(test::small_model(), {"embedding_grad", "linear_grad_weight"});
  config::Model dims = test::small_dims(2, false);
  dims.attention_bias = true;
  check(model::decoder(dims, {32, DType::bf16, model::Objective::loss}),
        {"embedding_grad", "linear_grad_weight", "linear_grad_bias"});
  dims = test::small_dims(2, false);
  dims.hidden_size = 80, dims.intermediate_size = 96, dims.head_dim = 16;
  model::Graph coded = model::decoder(dims, {32, DType::bf16, model::Objective::loss});
  model::use_fp8(coded, "tensorwise");
  check(coded, {"embedding_grad", "linear_fp8_grad_weight"});
}

/// What is recomputed is held until the half for weights, or is used for both halves at once: then it is held
/// no longer than without halves.
TEST(Schedules, HalvesForWeightsMayBeOfWhatForwardKeptAlone) {
  JobSpec spec = test::spec_on(1, 1, find_strategy("NO_SHARD"), 4);
  const auto step = [&](const Schedule& schedule, int every, LateWeights late) {
    spec.schedule = schedule;
    spec.recompute.every = every;
    spec.pipeline.late_weights = late;
    return compile(test::small_model(4), spec, 0).train();
  };
  const auto late_products = [](const Program& p) {
    return std::ranges::count_if(p.ops, [](const Op& op) {
      return op.type == "linear_grad_weight" && op.action.half == Half::weights;
    });
  };
  const auto live = [](const Program& p) { return p.plan[0].live_bytes; };
  const Schedule& at_end = other_schedules[3];
  const Program all = step(at_end, 1, LateWeights::all), kept = step(at_end, 1, LateWeights::kept);
  const Program whole = step(find_schedule("sequential"), 1, LateWeights::all);
  EXPECT_GT(late_products(all), 0);
  EXPECT_EQ(late_products(kept), 0);
  EXPECT_LE(live(kept), live(whole));
  EXPECT_GT(live(all), live(whole));
  EXPECT_DOUBLE_EQ(flops_of(kept), flops_of(all));
  // Of every second block, and of what nothing is recomputed for.
  const Program half = step(at_end, 2, LateWeights::kept);
  EXPECT_EQ(2 * late_products(half), late_products(all));
  EXPECT_EQ(late_products(step(at_end, 0, LateWeights::kept)), late_products(all));
}

/// Compiled once for many micro-batches is what the schedule states to repeat.
TEST(Schedules, RepeatWhereTheyStateIt) {
  const auto times = [](const Schedule& schedule) {
    JobSpec spec = test::spec_on(1, 2, find_strategy("FULL_SHARD"), 16);
    spec.repeat_slack = 1;
    spec.schedule = schedule;
    return compile(test::small_model(), spec, 0).train().repeat.times;
  };
  EXPECT_EQ(times(find_schedule("sequential")), 12);
  Schedule ahead = other_schedules[1];
  EXPECT_EQ(times(ahead), 1);
  ahead.steady = [](const ScheduleInput& s) {
    return SteadyState{.begin = 2, .end = 2 * s.micro_batches - 2, .length = 2, .in_flight = 2};
  };
  EXPECT_EQ(times(ahead), 7);
}

TEST(Schedules, AListThatIsNoStepDoesNotCompile) {
  JobSpec spec = test::spec_on(1, 1, find_strategy("NO_SHARD"), 2);
  spec.schedule = {"forwards", [](const ScheduleInput&) { return std::vector<Turn>{{}}; }};
  EXPECT_NE(test::refusal([&] {
              compile(test::small_model(), spec, 0);
            }).find("schedule 'forwards': chunk 0 of micro-batch 0 is not done at the end"),
            std::string::npos);
}

/// In time and memory in proportion to the turns of all ranks.
TEST(Schedules, MessagesOfHundredsOfRanksArePlannedAtOnce) {
  PipelineSteps steps(find_schedule("zb-v"), 500, 1);
  for (int rank = 0; rank < 500; rank += 25)
    EXPECT_EQ(steps.messages(4).of(rank).received.size(), rank == 0 || rank == 499 ? 8U : 16U) << rank;
}

}  // namespace
}  // namespace ztrain::program::schedules_test
