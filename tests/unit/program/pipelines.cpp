// Schedules of pipelines: every one of them is a step on any number of ranks and micro-batches, waits as long
// and holds as much as its paper says, and what follows it is proven; what is broken is refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/fields/fields.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/step/record.hpp"
#include "program/passes/stages.hpp"
#include "tests/support/drawn_order.hpp"
#include "tests/support/schedules.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::pipelines_test {
namespace {

using test::even;
using test::order_of;
using test::Timeline;
using test::TurnCosts;

constexpr const char* names[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",     "zb-h2",
                                 "zb-v",  "v-half", "v-min",       "dualpipe-v"};

TEST(Pipelines, TheDeckNamesTheSchedulesThereAre) {
  const std::vector<std::string>& choices = config::find_field("pipeline.schedule")->legal.choices;
  EXPECT_EQ(choices.size(), std::size(names));
  for (const std::string& name : choices) EXPECT_EQ(find_schedule(name).name, name);
}

TEST(Pipelines, EveryRankTakesEachTurnOnceWhateverTheNumbers) {
  for (const char* name : names)
    for (const int ranks : {2, 3, 4, 7, 16, 64})
      for (const int micros : {1, 2, 3, ranks - 1, ranks, ranks + 1, 2 * ranks - 1, 3 * ranks + 2, 256})
        for (const int chunks : {0, 3}) {
          Schedule schedule = find_schedule(name);
          if (chunks > 0 && schedule.name != "interleaved") continue;
          if (chunks > 0) schedule.chunks = chunks;
          const PipelineOrder order = order_of(schedule, ranks, micros);
          const std::string what = fmt::format("{}, {} ranks, {} micro-batches", name, ranks, micros);
          for (const auto& turns : order.turns)
            ASSERT_EQ(fault_of(turns, schedule.chunks, micros), "") << what;
          ASSERT_GT(even(order).seconds, 0) << what;  // nobody waits in a circle
        }
}

/// What each waits for where forwards and both halves of backwards take equally long, or given times, in
/// those of a whole rank, against the papers.
TEST(Pipelines, WaitAsLongAsTheirPapersSay) {
  for (const int p : {2, 4, 8, 16}) {
    const int m = 4 * p;
    const auto whole = [&](const char* name, const TurnCosts& c) {
      const Timeline line = even(order_of(find_schedule(name), p, m), c);
      return line.seconds - m * find_schedule(name).chunks * (c.forward + c.inputs + c.weights);
    };
    for (const TurnCosts c : {TurnCosts{1, 1, 1}, TurnCosts{2, 3, 1.5}}) {
      const double f = c.forward, b = c.inputs, w = c.weights;
      EXPECT_DOUBLE_EQ(whole("gpipe", c), (p - 1) * (f + b + w));
      EXPECT_DOUBLE_EQ(whole("1f1b", c), (p - 1) * (f + b + w));
      EXPECT_DOUBLE_EQ(whole("interleaved", c), (p - 1) * (f + b + w)) << "in turns of half a rank's stages";
    }
    EXPECT_DOUBLE_EQ(whole("zb-h1", {1, 1, 1}), p - 1) << "(p - 1) (F + B - W)";
    EXPECT_LE(whole("dualpipe-v", {1, 1, 1}), (p - 1) * (3 + 2 - 3)) << "(p - 1) (F&B + B - 3 W)";
    EXPECT_DOUBLE_EQ(whole("v-half", {1, 1, 1}), std::max(1, 3 * p - 7)) << "halves of a rank's";
    EXPECT_LE(whole("v-min", {1, 1, 1}), 4 * p - 5) << "halves of a rank's";
    for (const char* name : {"zb-h2", "zb-v"}) {
      const Timeline line = even(order_of(find_schedule(name), p, m));
      for (int rank = 0; rank < p; ++rank)
        EXPECT_DOUBLE_EQ(line.waiting_between(rank), 0) << name << ", rank " << rank << " of " << p;
    }
  }
}

TEST(Pipelines, HoldAsManyActivationsAsTheirPapersSay) {
  for (const int p : {2, 3, 4, 8, 9}) {
    const int m = 4 * p;
    const auto alive = [&](const char* name) { return even(order_of(find_schedule(name), p, m)).alive; };
    for (int rank = 0; rank < p; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      EXPECT_EQ(alive("gpipe")[r], m);
      EXPECT_EQ(alive("1f1b")[r], p - rank);
      EXPECT_EQ(alive("interleaved")[r], p + 1 + 2 * (p - 1 - rank)) << "halves of a rank's";
      EXPECT_EQ(alive("zb-h1")[r], p);
      EXPECT_EQ(alive("zb-h2")[r], 2 * p - 1);
      EXPECT_EQ(alive("zb-v")[r], 2 * p) << "halves of a rank's";
      EXPECT_EQ(alive("dualpipe-v")[r], 2 * p + 1) << "halves of a rank's";
    }
    EXPECT_EQ(std::ranges::max(alive("v-half")), 2 * ((p + 2) / 2)) << "halves of a rank's";
    EXPECT_EQ(std::ranges::max(alive("v-min")), 2 * ((p + 4) / 3)) << "halves of a rank's";
  }
}

/// However far ranks are ahead of each other: receives begin early enough that no two wait for each other.
TEST(Pipelines, AnyOrderInWhichNobodyWaitsForItselfIsProven) {
  std::uint64_t seed = 0;
  for (const StageMap map :
       {StageMap{2, 1, false}, {3, 1, false}, {2, 2, false}, {4, 2, false}, {2, 2, true}, {3, 2, true}})
    for (const int ahead : {0, 1, 2, 4})
      for (int draws = 0; draws < 4; ++draws) {
        const int micros = 3 + draws;
        const auto turns = test::DrawnOrder(map, micros, ++seed).draw().turns;
        JobSpec spec = test::spec_on(1, 1, find_strategy("FULL_SHARD"), micros);
        spec.mesh[Axis::pipeline] = map.ranks;
        spec.schedule = {"drawn",
                         [turns](const ScheduleInput& i) { return turns[static_cast<std::size_t>(i.rank)]; },
                         map.chunks, map.vee};
        spec.pipeline.receive_ahead = ahead;
        EXPECT_EQ(test::refusal([&] { verify_job(test::small_model(map.stages()), spec); }), "")
            << "draw " << seed << ", " << map.ranks << " ranks, " << ahead << " ahead";
      }
}

TEST(Pipelines, AListThatWaitsForItselfIsRefused) {
  PipelineOrder order = order_of(find_schedule("1f1b"), 2, 3);
  std::swap(order.turns[0][1], order.turns[0][2]);  // the first backward before the second forward
  EXPECT_GT(even(order).seconds, 0);
  std::swap(order.turns[1][1], order.turns[1][4]);  // the last rank's first backward behind its last forward
  std::swap(order.turns[0][1], order.turns[0][4]);
  order.turns[0] = {order.turns[0].rbegin(), order.turns[0].rend()};
  EXPECT_NE(test::refusal([&] { even(order); }).find("waits at its"), std::string::npos);
  EXPECT_NE(test::refusal([&] { plan_messages(order, 0); }).find("waits at its"), std::string::npos);
}

// Programs.

JobSpec pipeline_spec(const char* schedule, int ranks, const char* strategy, int micros, int shard = 2) {
  JobSpec spec = test::spec_on(1, shard, find_strategy(strategy), micros);
  spec.mesh[Axis::pipeline] = ranks;
  spec.schedule = find_schedule(schedule);
  return spec;
}

/// The message with which a job is refused whose step was changed on one rank of the pipeline.
std::string refusal_with(const char* schedule, int rank, void (*fault)(std::vector<Op>&)) {
  JobSpec spec = pipeline_spec(schedule, 2, "FULL_SHARD", 4);
  spec.program_passes.emplace_back([=](Program& p) {
    if (p.name == train_name && Coordinate(p.mesh, p.rank)[Axis::pipeline] == rank) fault(p.ops);
  });
  return test::refusal([&] { verify_job(test::small_model(4), spec); });
}

std::vector<Op>::iterator first(std::vector<Op>& ops, CommKind kind) {
  return std::ranges::find_if(ops, [&](const Op& op) { return op.comm.kind == kind; });
}

/// The first two: which comes first, or which says that it does.
template <bool as_said>
void swap_receives(std::vector<Op>& ops) {
  const auto one = first(ops, CommKind::recv);
  const auto other =
      std::find_if(one + 1, ops.end(), [](const Op& op) { return op.comm.kind == CommKind::recv; });
  if (as_said)
    std::swap(one->action, other->action);
  else
    std::swap(*one, *other);
}

TEST(Pipelines, BrokenMessagesAreRefused) {
  EXPECT_EQ(refusal_with("1f1b", 0, [](std::vector<Op>&) {}), "");
  EXPECT_NE(refusal_with("1f1b", 0, [](auto& ops) { ops.erase(first(ops, CommKind::send)); }), "")
      << "dropped";
  const auto swapped = refusal_with("1f1b", 1, swap_receives<false>);
  EXPECT_NE(swapped.find("before any op writes it"), std::string::npos) << swapped;
  const auto renamed = refusal_with("1f1b", 1, swap_receives<true>);
  EXPECT_NE(renamed.find("of micro-batch 1"), std::string::npos) << renamed;
  const auto lied = refusal_with("1f1b", 0, [](auto& ops) {
    Op& send = *first(ops, CommKind::send);
    auto message = record_of<Send>(send.attributes);
    message.split_over = 0;
    send.attributes = attributes_of(message);
  });
  EXPECT_NE(lied.find("it sends"), std::string::npos) << lied;
  const auto other = refusal_with("interleaved", 0, [](auto& ops) {
    Op& send = *first(ops, CommKind::send);
    auto message = record_of<Send>(send.attributes);
    ++message.boundary;
    send.attributes = attributes_of(message);
  });
  EXPECT_NE(other.find("into stage"), std::string::npos) << other;
}

/// What is sent lives until the other side is known to receive it: else its bytes are waited for too early.
TEST(Pipelines, SendsThatAreWaitedForTooEarlyAreRefused) {
  const auto drop = [](std::vector<Op>& ops) {
    std::set<TensorId> sent;
    for (const Op& op : ops)
      if (op.comm.kind == CommKind::send) sent.insert(op.inputs[0]);
    std::erase_if(ops, [&](const Op& op) { return op.type == Release::op && sent.contains(op.inputs[0]); });
  };
  JobSpec spec = pipeline_spec("zb-v", 2, "FULL_SHARD", 4);
  spec.program_passes.emplace_back([=](Program& p) { drop(p.ops); });
  EXPECT_NE(test::refusal([&] { verify_job(test::small_model(5), spec); }).find("deadlock"),
            std::string::npos);
}

// Stages.

TEST(Pipelines, StagesAreAsEvenAsTheirCostsLetThem) {
  EXPECT_EQ(cut_evenly({0, 1, 1, 1, 1, 0}, 2), (std::vector<int>{0, 3, 6}));
  EXPECT_EQ(cut_evenly({0, 1, 1, 1, 1, 1, 3}, 2), (std::vector<int>{0, 5, 7})) << "the head counts";
  EXPECT_EQ(cut_evenly({0, 1, 1, 1, 1, 1, 0}, 3), (std::vector<int>{0, 2, 4, 7}))
      << "or 1 2 2: the most is 2";
  EXPECT_EQ(cut_by_layers({1, 4}, 7), (std::vector<int>{0, 2, 7}));
  const model::Graph graph = test::small_model(8);
  const std::vector<double> costs = block_costs(graph, {}, build_target());
  ASSERT_EQ(costs.size(), 10U);
  EXPECT_EQ(costs[0], 0) << "a lookup";
  EXPECT_EQ(costs[1], costs[8]);
  EXPECT_GT(costs[9], 0);
  EXPECT_GT(block_costs(graph, {.every = 1, .tags = {}}, build_target())[1], costs[1]) << "recomputed";
}

TEST(Pipelines, ParametersAreOfOneStage) {
  const model::Graph graph = test::small_model(5);
  std::vector<int> owners(graph.parameters.size(), 0);
  for (int rank = 0; rank < 3; ++rank) {
    JobSpec spec = pipeline_spec("1f1b", 3, "FULL_SHARD", 2, 1);
    const Job job = compile(graph, spec, rank);
    for (std::size_t p = 0; p < owners.size(); ++p) owners[p] += job.graph.parameters[p].elsewhere ? 0 : 1;
    EXPECT_EQ(job.layout.parameter_count(),
              compile(graph, test::spec_on(1, 1, find_strategy("NO_SHARD")), 0).layout.parameter_count());
  }
  EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
}

// Tied embeddings, which the first and the last rank have.

TEST(Pipelines, TiedEmbeddingsAreProvenUnderEveryStrategy) {
  const model::Graph graph = test::small_model(4, true);
  for (const char* name : names)
    for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "FULL_SHARD"})
      for (const int ranks : {2, 4}) {
        if (ranks * find_schedule(name).chunks > 4) continue;
        JobSpec spec = pipeline_spec(name, ranks, strategy, 3);
        EXPECT_EQ(test::refusal([&] { verify_job(graph, spec); }), "") << name << ", " << strategy;
        const bool vee = stage_map(spec.schedule, ranks).vee;
        for (const int stage : {0, vee ? 0 : ranks - 1}) {
          const Job job = compile(graph, spec, 2 * stage);
          const auto& all = job.graph.parameters;
          const auto tied = std::ranges::find(all, "model.embed_tokens.weight", &model::Parameter::name);
          ASSERT_NE(tied, all.end());
          EXPECT_EQ(tied->other_rank, vee ? -1 : ranks - 1 - stage) << name;
        }
      }
}

/// The message with which a job with tied embeddings is refused whose step was changed on both of the ranks.
std::string tied_refusal_with(void (*fault)(std::vector<Op>&)) {
  JobSpec spec = pipeline_spec("1f1b", 2, "FULL_SHARD", 2);
  spec.program_passes.emplace_back([=](Program& p) {
    if (p.name == train_name) fault(p.ops);
  });
  return test::refusal([&] { verify_job(test::small_model(2, true), spec); });
}

bool joins(const Op& op) {
  return op.type == Add::op && op.action.kind == ActionKind::reduce;
}

TEST(Pipelines, GradientsOfTiedEmbeddingsAreSumsOfBothStages) {
  EXPECT_EQ(tied_refusal_with([](auto&) {}), "");
  const auto left_out = tied_refusal_with([](auto& ops) { std::erase_if(ops, joins); });
  EXPECT_NE(left_out.find("that of one of the two stages"), std::string::npos) << left_out;
  const auto twice = tied_refusal_with([](auto& ops) {
    const auto sum = std::ranges::find_if(ops, joins);
    ops.insert(sum, Op(*sum));
  });
  EXPECT_NE(twice.find("twice"), std::string::npos) << twice;
  const auto own = tied_refusal_with([](auto& ops) {
    Op& sum = *std::ranges::find_if(ops, joins);
    sum.inputs[Add::addend] = sum.inputs[Add::x];
  });
  EXPECT_NE(own.find("not the other stage's"), std::string::npos) << own;
  const auto counted = tied_refusal_with([](auto& ops) {
    for (Op& op : ops)
      if (op.type == SumSquares::op && op.name.find("two stages") != std::string::npos)
        op.attributes = attributes_of(SumSquares{{{0, 1}}});
  });
  EXPECT_NE(counted.find("speaks for"), std::string::npos) << counted;
}

}  // namespace
}  // namespace ztrain::program::pipelines_test
