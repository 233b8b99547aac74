// Pipelines of many micro-batches, of which those in the middle are compiled once (program/loops/repeat.hpp),
// beside the same steps compiled in full: on every rank of every schedule.

#include <fmt/format.h>

#include <string_view>

#include "program/schedules/middle.hpp"
#include "program/schedules/pipeline_steps.hpp"
#include "tests/support/repeat_in_full.hpp"
#include "tests/support/schedules.hpp"

namespace ztrain::program::repeat_stages_test {
namespace {

using test::refusal;
using test::small_model;

constexpr const char* names[] = {"1f1b", "interleaved", "zb-h1", "zb-h2",
                                 "zb-v", "v-half",      "v-min", "dualpipe-v"};
constexpr double any_memory = 1;

JobSpec staged(const char* schedule, int ranks, int micro_batches, const char* strategy = "FULL_SHARD") {
  JobSpec spec = test::spec_on(1, 2, find_strategy(strategy), micro_batches);
  spec.mesh[Axis::pipeline] = ranks;
  spec.schedule = find_schedule(schedule);
  spec.repeat_slack = any_memory;
  return spec;
}

int rank_of_stage(const JobSpec& spec, int stage) {
  return stage * spec.mesh.ranks() / spec.mesh[Axis::pipeline];
}

bool rotates(const Program& p) {
  return std::ranges::any_of(p.repeat.rings, [&](const Ring& ring) { return p.rotates(ring); });
}

/// The turns of a rank in the step of a few micro-batches, with the body taken as often as in the whole step.
std::vector<Turn> written_out(const std::vector<Turn>& few, const Middle& middle, int rank) {
  const Middle::Body& body = middle.bodies[static_cast<std::size_t>(rank)];
  std::vector<Turn> turns(few.begin(), few.begin() + body.begin);
  const auto append = [&](int begin, int end, int micros) {
    for (auto turn = few.begin() + begin; turn != few.begin() + end; ++turn)
      turns.push_back({turn->kind, turn->chunk, turn->micro + micros});
  };
  for (int time = 0; time < middle.times; ++time) append(body.begin, body.end(), time * middle.stride);
  append(body.end(), static_cast<int>(few.size()), middle.shift());
  return turns;
}

/// Each schedule's statement of its steady state holds in its turns.
TEST(RepeatStages, AreStatedByEverySchedule) {
  for (const char* name : names)
    for (const int ranks : {2, 3, 4, 8, 16}) {
      const Schedule schedule = find_schedule(name);
      for (const int more : {0, 1, 5}) {
        const int micros = 12 * ranks + 24 + more;
        const auto middle = middle_of(schedule, ranks, micros, 1);
        ASSERT_TRUE(middle) << name << ", " << ranks << " ranks, " << micros << " micro-batches";
        EXPECT_EQ(middle->few + middle->shift(), micros);
        EXPECT_LT(middle->few, 10 * ranks + 16) << name << ", " << ranks << " ranks";
        EXPECT_EQ(middle->stride, schedule.name == "interleaved" ? ranks : 1);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto turns = [&](int m) { return turns_of(schedule, {m, ranks, rank, schedule.chunks}); };
          const std::vector<Turn> few = turns(middle->few);
          EXPECT_EQ(few[static_cast<std::size_t>(middle->bodies[static_cast<std::size_t>(rank)].begin)].kind,
                    TurnKind::forward);
          EXPECT_EQ(written_out(few, *middle, rank), turns(micros)) << name << ", rank " << rank;
        }
      }
    }
  EXPECT_FALSE(middle_of(find_schedule("gpipe"), 4, 200, 1));
  EXPECT_FALSE(middle_of(find_schedule("1f1b"), 8, 16, 1));
}

TEST(RepeatStages, AreTheStepInFullOnEveryRank) {
  int count = 0;
  for (const char* name : names)
    for (const char* strategy : {"FULL_SHARD", "zero2"}) {
      JobSpec spec = staged(name, 3, 36 + count % 3, strategy);
      const bool zero2 = std::string_view(strategy) == "zero2";
      spec.recompute.every = zero2 && spec.schedule.name != "interleaved" ? 1 : 0;
      const model::Graph graph = small_model(6);
      for (int stage = 0; stage < 3; stage += 2, ++count) {
        SCOPED_TRACE(fmt::format("{}, {}, stage {}", name, strategy, stage));
        const Program step = compile(graph, spec, rank_of_stage(spec, stage)).train();
        EXPECT_GT(step.repeat.times, 1);
        EXPECT_TRUE(rotates(step));
        test::expect_as_in_full(graph, spec, rank_of_stage(spec, stage));
      }
      EXPECT_EQ(refusal([&] { verify_job(graph, spec); }), "") << name << ", " << strategy;
    }
}

TEST(RepeatStages, CompileNoMoreForMoreMicroBatches) {
  const model::Graph graph = small_model(4);
  const Program few = compile(graph, staged("1f1b", 4, 32), 0).train();
  ASSERT_GT(few.repeat.times, 1);
  for (const int micro_batches : {33, 64, 1024}) {
    const Program p = compile(graph, staged("1f1b", 4, micro_batches), 0).train();
    EXPECT_EQ(p.ops.size(), few.ops.size());
    EXPECT_EQ(p.issues(), few.issues() + std::int64_t{micro_batches - 32} * few.repeat.length());
    for (int tier = 0; tier < tier_count; ++tier)
      EXPECT_EQ(p.plan[tier].live_bytes, few.plan[tier].live_bytes);
  }
}

TEST(RepeatStages, OfTiedEmbeddingsAndOffloadAreProven) {
  for (const char* name : {"1f1b", "interleaved"}) {
    JobSpec spec = staged(name, 2, 24, "zero1");
    EXPECT_EQ(refusal([&] { verify_job(small_model(4, true), spec); }), "") << name;
    spec.strategy = find_strategy("FULL_SHARD");
    spec.offload.optimizer = spec.offload.master = {Tier::host, 1};
    spec.offload.activations = {Tier::host, 0.5};
    EXPECT_EQ(refusal([&] { verify_job(small_model(4), spec); }), "") << name;
  }
}

/// A time of interleaved's body has as many micro-batches as ranks.
TEST(RepeatStages, OfSeveralMicroBatchesWithRecomputationAreCompiledInFull) {
  JobSpec spec = staged("interleaved", 2, 40);
  spec.recompute.every = 1;
  EXPECT_EQ(compile(small_model(4), spec, rank_of_stage(spec, 1)).train().repeat.times, 1);
  EXPECT_EQ(refusal([&] { verify_job(small_model(4), spec); }), "");
}

/// What needs more memory than is alive is compiled in full.
TEST(RepeatStages, TakeNoMoreMemoryThanTheyMay) {
  const model::Graph graph = small_model(6);
  JobSpec spec = staged("interleaved", 3, 36);
  ASSERT_GT(compile(graph, spec, 0).train().repeat.times, 1);
  spec.repeat_slack = 0;
  EXPECT_EQ(compile(graph, spec, 0).train().repeat.times, 1);
}

/// Some ranks in full beside others: the whole steps are proven together.
TEST(RepeatStages, StandBesideRanksThatAreCompiledInFull) {
  const model::Graph graph = small_model(4);
  JobSpec spec = staged("1f1b", 2, 20);
  spec.mesh[Axis::shard] = 1;
  const Program first = compile(graph, spec, 0).train();
  spec.every_micro_batch = true;
  Program second = compile(graph, spec, 1).train();
  ASSERT_GT(first.repeat.times, 1);
  ASSERT_EQ(second.repeat.times, 1);
  EXPECT_EQ(refusal([&] { verify_no_deadlock({&first, &second}, {{0}, {1}}); }), "");
  const auto send =
      std::ranges::find_if(second.ops, [](const Op& op) { return op.comm.kind == CommKind::send; });
  send->action.micro += 1;
  EXPECT_NE(refusal([&] { verify_no_deadlock({&first, &second}, {{0}, {1}}); }), "");
}

TEST(RepeatStages, AreRefusedWhereSlotsAreNotTheirs) {
  const model::Graph graph = small_model(4);
  const Program good = compile(graph, staged("1f1b", 2, 20), 0).train();
  ASSERT_EQ(refusal([&] { verify_rank(good); }), "");
  ASSERT_TRUE(rotates(good));
  const auto refused_for = [&](const char* reason, auto spoil) {
    Program p = good;
    spoil(p);
    const std::string text = refusal([&] { verify_rank(p); });
    EXPECT_NE(text.find(reason), std::string::npos) << reason << ", not: " << text;
  };
  const auto ring = [](Program& p) -> Ring& {
    return *std::ranges::find_if(p.repeat.rings, [&](const Ring& r) { return p.rotates(r); });
  };
  refused_for("is not number 0 of its ring",
              [&](Program& p) { std::swap(ring(p).tensors[0], ring(p).tensors[1]); });
  refused_for("does not follow", [&](Program& p) { ++p.tensor(ring(p).tensors[1]).ring_index; });
  refused_for("does not follow", [&](Program& p) {
    for (const int i : {0, 1}) p.tensor(ring(p).tensors[static_cast<std::size_t>(i)]).ring_index = 1 - i;
    std::swap(ring(p).tensors[0], ring(p).tensors[1]);
  });
  refused_for("whose slot it has", [&](Program& p) { p.tensor(ring(p).tensors.back()).address += 256; });
  refused_for("in a ring that does not have it", [&](Program& p) { ring(p).tensors.pop_back(); });
  refused_for("there are slots that no tensor has",
              [&](Program& p) { ring(p).slots = static_cast<int>(ring(p).tensors.size()) + 1; });
  refused_for("but nothing orders", [&](Program& p) {
    for (OpId id = p.repeat.warm_up_begin(); id < p.repeat.end + p.repeat.length(); ++id)
      p.op(id).after.clear();
  });
  // Two that rotate have the bytes of each other.
  refused_for("share bytes", [&](Program& p) {
    for (const TensorId t : ring(p).tensors) p.tensor(t).address = p.tensor(ring(p).tensors[0]).address;
  });
}

}  // namespace
}  // namespace ztrain::program::repeat_stages_test
