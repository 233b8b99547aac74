// Plans of decks: cost, verdict, and the changes that make a deck fit.

#include "plan/fit.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "config/validate/validate.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "layout/comm_cost.hpp"
#include "plan/report/report.hpp"
#include "tests/support/plan_decks.hpp"

namespace ztrain::plan::plan_fit_test {
namespace {

using program::Tier;
using test::Decks;

TEST_F(Decks, ArePlannedWithoutTheFilesThatTheyName) {
  const Cost c = cost_of(question(4));
  EXPECT_EQ(c.ranks, 4);
  EXPECT_EQ(c.mesh[Axis::shard], 4);
  EXPECT_EQ(c.memory.size(), 1u) << "all ranks hold the same";
  EXPECT_GT(c.step.seconds, 0);
  EXPECT_DOUBLE_EQ(c.tokens_per_step(), 32 * 64);
  EXPECT_GT(total_bytes(c.traffic), 0);
  EXPECT_LE(c.seconds_without_reuse, c.step.seconds);
}

TEST_F(Decks, TheShareOfThePeakIsThatOfAllRanks) {
  for (const int ranks : {1, 4}) {
    const Cost c = cost_of(question(ranks));
    const double flops = c.flops_per_token * c.tokens_per_step();  // of one step of the job
    EXPECT_NEAR(c.mfu(), flops / (c.step.seconds * ranks * c.machine.peak_flops), 1e-12) << ranks;
    EXPECT_GT(c.mfu(), 0);
  }
}

TEST_F(Decks, TheVocabularyIsTheDataSWhereTheDeckIsSilent) {
  Question q = question(2, 0, {"model.vocab_size=0"});
  EXPECT_THROW(cost_of(q), Error);
  q.vocabulary = 500;
  EXPECT_EQ(cost_of(q).parameters, cost_of(question(2)).parameters);
}

TEST_F(Decks, MoreMicroBatchesThanAreSimulatedAreExtrapolated) {
  for (const char* strategy : {"FULL_SHARD", "zero1"}) {
    const std::vector<std::string> more{std::string("sharding.strategy=") + strategy, "batch.micro=1"};
    const Cost all = cost_of(question(2), more, {.most_times = 100}),
               few = cost_of(question(2), more, {.most_times = 2});
    EXPECT_EQ(all.extrapolated_from, 0);
    EXPECT_EQ(few.extrapolated_from, 6);
    EXPECT_NEAR(few.step.seconds, all.step.seconds, 1e-9 * all.step.seconds) << strategy;
    EXPECT_NEAR(few.step.flops, all.step.flops, 1e-9 * all.step.flops);
    EXPECT_EQ(total_bytes(few.traffic), total_bytes(all.traffic));
    EXPECT_EQ(few.largest(Tier::device).persistent(Tier::device),
              all.largest(Tier::device).persistent(Tier::device));
    EXPECT_EQ(held(few), held(all));
  }
}

/// Three ranks on nodes of two: the third is alone on its node, and all its bytes leave that by one link.
TEST_F(Decks, AStepTakesAsLongAsOnTheNodeWithTheFewestRanks) {
  const auto seconds = [&](int ranks_per_node) {
    return cost_of(question(3), {"batch.global=24", "cluster.intra_node_bandwidth=1000",
                                 "cluster.inter_node_bandwidth=0.001",
                                 "cluster.ranks_per_node=" + std::to_string(ranks_per_node)})
        .step.seconds;
  };
  const double together = seconds(3), apart = seconds(1);
  EXPECT_GT(apart, 10 * together);
  EXPECT_NEAR(seconds(2), apart, 1e-6 * apart);
}

TEST_F(Decks, WhatIsBoundByCommunicationTakesItsBytesOverTheBandwidth) {
  for (const char* strategy : {"NO_SHARD", "zero1", "zero2", "FULL_SHARD"}) {
    const Cost c = cost_of(
        question(4), {std::string("sharding.strategy=") + strategy, "cluster.intra_node_bandwidth=0.001"});
    const double least = static_cast<double>(total_bytes(c.traffic)) / 1e6;
    EXPECT_GE(c.step.seconds, least) << strategy;
    EXPECT_LE(c.step.seconds, 1.1 * least) << strategy;
    EXPECT_GE(c.seconds_without_reuse, (1 - 1e-9) * least) << strategy;
  }
}

TEST_F(Decks, TheMachineIsTheDecksWhereItSaysSo) {
  const auto machine = [&](const std::vector<std::string>& more) {
    return machine_of(deck_of(question(1), more));
  };
  const Machine assumed = machine({});
  EXPECT_DOUBLE_EQ(assumed.outside_memory, 3e9);
  EXPECT_DOUBLE_EQ(assumed.latency, 10e-6);
  EXPECT_TRUE(assumed.peak_assumed);
  EXPECT_DOUBLE_EQ(assumed.peak_flops, 67e12) << "fp32";
  EXPECT_DOUBLE_EQ(machine({"cluster.latency=0"}).latency, 0);
  EXPECT_DOUBLE_EQ(machine({"cluster.outside_memory=0"}).outside_memory, 0);
  EXPECT_DOUBLE_EQ(machine({"cluster.device_memory=40"}).outside_memory, 0);
  EXPECT_DOUBLE_EQ(machine({"cluster.preset=a100-40gb"}).outside_memory, 3e9);
  EXPECT_DOUBLE_EQ(machine({"cluster.preset=a100-40gb"}).peak_flops, 19.5e12);
  EXPECT_FALSE(machine({"cluster.preset=a100-40gb"}).peak_assumed);
  EXPECT_EQ(machine({"cluster.preset=a100-40gb"}).target, Target::cuda);
  EXPECT_EQ(machine({"cluster.device_memory=40"}).target, build_target());
  EXPECT_TRUE(machine({"cluster.preset=a100-40gb", "precision.preset=fp64"}).peak_assumed);
  Question nodes = question(1);
  nodes.limits.outside_memory.reset();
  nodes.limits.device_memory = 0;
  EXPECT_DOUBLE_EQ(machine_for(nodes, deck_of(nodes)).outside_memory, 0) << "no device, no context of it";
}

TEST_F(Decks, TheStrategiesTableAgreesWithThePlan) {
  const Question q = question(4, 0, {"sharding.strategy=zero2", "batch.micro=1"});
  const Cost own = cost_of(q);
  std::vector<std::string> seen;
  for (const Cost& c : costs_by_strategy(q, own)) {
    seen.push_back(c.deck.sharding.strategy);
    if (seen.back() != "zero2") continue;
    EXPECT_EQ(held(c), held(own));
    EXPECT_EQ(c.step.seconds, own.step.seconds);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "zero2"), 1);
  EXPECT_GE(seen.size(), 5u);
}

TEST_F(Decks, WhereNothingIsCutStrategiesCostWhatTheyDoWhenCompiled) {
  for (const char* threshold : {"sharding.persistence_threshold=0", "sharding.persistence_threshold=1000"}) {
    const Question q = question(1, 0, {threshold});
    for (const Cost& c : costs_by_strategy(q, cost_of(q))) {
      const std::string strategy = "sharding.strategy=" + c.deck.sharding.strategy;
      const Cost compiled = cost_of(q, {strategy});
      EXPECT_EQ(c.ops, compiled.ops) << threshold << ", " << strategy;
      EXPECT_EQ(held(c), held(compiled)) << threshold << ", " << strategy;
      EXPECT_EQ(c.step.seconds, compiled.step.seconds) << threshold << ", " << strategy;
    }
  }
}

TEST_F(Decks, GathersWithinAPartOfTheShardsAreNamed) {
  Plan plan{.question = question(4, 1e9, {"sharding.reshard_after_forward=2"}),
            .cost = {},
            .strategies = {},
            .fixes = {},
            .search = {}};
  plan.cost = cost_of(plan.question);
  const std::string text = report_text(plan);
  EXPECT_NE(text.find("\n  shard_inner "), std::string::npos) << text;
  EXPECT_EQ(text.find("\n  none "), std::string::npos) << text;
}

TEST_F(Decks, VerdictCountsDevicesOrNodes) {
  const Cost c = cost_of(question(4, 1e9));
  EXPECT_TRUE(verdict_of(c).fits());
  EXPECT_DOUBLE_EQ(verdict_of(c).device_needed, held(c));
  EXPECT_FALSE(verdict_of(cost_of(question(4, held(c) - 1))).fits());
  Question q = question(4);
  q.limits.device_memory = 0;
  q.limits.ranks_per_node = 2;
  const double needed = 2 * (held(c) + static_cast<double>(checkpoint_room));
  q.limits.host_memory = needed;
  EXPECT_TRUE(verdict_of(cost_of(q)).fits()) << "two ranks compute in the memory of a node";
  q.limits.host_memory = needed - 1;
  EXPECT_FALSE(verdict_of(cost_of(q)).fits());
}

TEST_F(Decks, EveryChangeOfTheTableLoads) {
  const std::vector<std::string> far{"sharding.strategy=NO_SHARD", "sharding.gradient_accumulation=no_sync",
                                     "mesh.replicate=2", "batch.micro=4"};
  const Question bf16 = question(4, 0, [&] {
    auto all = far;
    all.push_back("precision.preset=bf16");
    return all;
  }());
  std::size_t seen = 0;
  for (const Change& c : changes_for(bf16)) {
    EXPECT_NO_THROW(cost_of(bf16, c.overrides)) << command_line(c.overrides);
    EXPECT_FALSE(c.reason.empty());
    ++seen;
  }
  EXPECT_GE(seen, 9u);
  EXPECT_TRUE(compatible({{"a.b=1"}, Effect::none, ""}, {{"a.c=1"}, Effect::none, ""}));
  EXPECT_FALSE(compatible({{"a.b=1"}, Effect::none, ""}, {{"a.c=1", "a.b=2"}, Effect::none, ""}));
}

TEST_F(Decks, FixesFitAndTheCheapestComeFirst) {
  // What libraries reserve on GPUs nothing makes smaller, and it is most of what this model takes.
  const double reserved = build_target() == Target::cuda ? gemm_cuda_workspace_bytes : 0;
  const double all = held(cost_of(question(4))), limit = reserved + 0.7 * (all - reserved);
  const Question q = question(4, limit);
  const Fixes fixes = fixes_for(q, Watch(10'000, 60));
  ASSERT_FALSE(fixes.best.empty());
  EXPECT_EQ(fixes.ended, Ended::not_early);
  for (std::size_t i = 0; i < fixes.best.size(); ++i) {
    const Fix& fix = fixes.best[i];
    EXPECT_LE(held(cost_of(q, fix.overrides)), limit) << command_line(fix.overrides);
    if (i > 0 && fix.effect != Effect::numerics) {
      EXPECT_LE(fix.cost.tokens_per_second(), fixes.best[i - 1].cost.tokens_per_second());
    }
  }
  EXPECT_NE(fixes.best.front().effect, Effect::numerics);
  const std::string text = cheapest_fix_text(q);
  EXPECT_NE(text.find(command_line(fixes.best.front().overrides)), std::string::npos) << text;
}

TEST_F(Decks, PairsAreTriedWhereNoSingleChangeHelps) {
  double least = held(cost_of(question(4)));
  const Question open = question(4);
  for (const Change& c : changes_for(open))
    if (c.effect != Effect::numerics) least = std::min(least, held(cost_of(open, c.overrides)));
  const Fixes fixes = fixes_for(question(4, least - 1), Watch(10'000, 60));
  ASSERT_FALSE(fixes.best.empty());
  EXPECT_GT(fixes.best.front().changes.size(), 1u);
}

TEST_F(Decks, LeastRanksHoldWhatFewerDoNot) {
  const double some = held(cost_of(question(16, 0, {"batch.micro=1"})));
  Question q = question(1, some * 1.01, {"batch.micro=1"});
  q.limits.ranks_per_node = 4;
  const auto least = least_ranks(q, {}, Watch(10'000, 60));
  ASSERT_TRUE(least.has_value());
  EXPECT_LE(least->ranks, 16);
  EXPECT_GT(least->ranks, 1);
  EXPECT_EQ(32 % least->ranks, 0) << "the batch";
  EXPECT_TRUE(least->overrides.empty());
  const auto fits_on = [&](int ranks) {
    q.ranks = ranks;
    return verdict_of(cost_of(q, {}, {.any_batch = true})).fits();
  };
  EXPECT_TRUE(fits_on(least->ranks));
  EXPECT_FALSE(fits_on(least->ranks > 4 ? least->ranks - 4 : least->ranks / 2));
  Question one_on_a_node = question(1, some * 1.01, {"batch.micro=1"});
  one_on_a_node.limits.ranks_per_node = 1;
  const std::string text = cheapest_fix_text(one_on_a_node);
  EXPECT_NE(text.find(" nodes of 1 rank"), std::string::npos) << text;
  EXPECT_FALSE(least_ranks(question(1, 1000), {}, Watch(10'000, 60)).has_value())
      << "nothing fits in a kilobyte";
}

TEST_F(Decks, LeastRanksDivideTheBatchOrSayWhichOneTheyDivide) {
  const double on_12 = held(cost_of(question(12, 0, {"batch.micro=1", "batch.global=24"})));
  const auto least = [&](const char* batch) {
    Question q = question(1, on_12, {"batch.micro=1", batch});
    q.limits.ranks_per_node = 4;
    return least_ranks(q, {}, Watch(10'000, 60)).value_or(LeastRanks{});
  };
  EXPECT_EQ(least("batch.global=24").ranks, 12);
  EXPECT_TRUE(least("batch.global=24").overrides.empty());
  EXPECT_EQ(least("batch.global=32").ranks, 16) << "12 ranks hold it and do not divide 32";
  EXPECT_TRUE(least("batch.global=32").overrides.empty());
  EXPECT_EQ(least("batch.global=31").ranks, 12);
  EXPECT_EQ(least("batch.global=31").overrides, std::vector<std::string>{"batch.global=24"});
  EXPECT_EQ(least("batch.global=2").overrides, std::vector<std::string>{"batch.global=12"});
}

TEST_F(Decks, SearchRanksSettingsThatFit) {
  const std::vector<std::string> one_stage{"mesh.pipeline=1"};  // others take longer to try
  const Question q = question(4, 1.2 * held(cost_of(question(4))), one_stage);
  const Search s = search_for(q, Watch(10'000, 60));
  ASSERT_GT(s.best.size(), 1u);
  for (std::size_t i = 1; i < s.best.size(); ++i)
    EXPECT_GE(s.best[i - 1].cost.tokens_per_second(), s.best[i].cost.tokens_per_second());
  for (const Setting& x : s.best)
    EXPECT_TRUE(verdict_of(cost_of(q, x.overrides)).fits()) << command_line(x.overrides);
  EXPECT_LE(s.least_ranks.value().ranks, 4);
  const auto as_it_is = least_ranks(q, {}, Watch(10'000, 60));
  EXPECT_EQ(s.frugal.empty(), as_it_is.has_value() && as_it_is->ranks == s.least_ranks->ranks);
  Plan plan{
      question(4), cost_of(question(4)), {}, {}, search_for(question(4, 0, one_stage), Watch(10'000, 60)),
      {}};
  EXPECT_TRUE(plan.search->least_overrides().empty()) << "it fits on one rank as it is";
  EXPECT_NE(report_text(plan).find("fits on 1 rank at least, with\n  the deck as it is\n"),
            std::string::npos);
}

TEST_F(Decks, SettingsSayWhetherTheyFormOtherSums) {
  const Question q = question(4, 0, {"mesh.pipeline=1"});
  const config::Deck own = resolved_deck(q);
  int same = 0, other = 0;
  for (const Setting& x : search_for(q, Watch(10'000, 60), 1000).best) {
    const config::Deck& d = x.cost.deck;
    const bool alike = d.mesh.shard == own.mesh.shard && d.batch.micro == own.batch.micro &&
                       (d.sharding.strategy != "NO_SHARD" && d.sharding.strategy != "zero1");
    EXPECT_EQ(x.effect, alike ? Effect::none : Effect::rounding) << command_line(x.overrides);
    ++(alike ? same : other);
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(other, 0);
}

TEST_F(Decks, RecomputationOfAnotherKindIsOfferedToo) {
  const std::vector<std::vector<std::string>> decks{
      {"recompute.mode=selective", "recompute.pieces=[\"norm\"]"},
      {"recompute.mode=full", "recompute.every=4"}};
  for (const auto& overrides : decks) {
    const double full = held(cost_of(question(4, 0, overrides), recompute_overrides("full"))),
                 own = held(cost_of(question(4, 0, overrides)));
    ASSERT_LT(full, own);
    const Fixes fixes = fixes_for(question(4, (full + own) / 2, overrides), Watch(10'000, 60), 100);
    const bool offered = std::any_of(fixes.best.begin(), fixes.best.end(), [](const Fix& fix) {
      return fix.effect == Effect::none && fix.overrides == recompute_overrides("full");
    });
    EXPECT_TRUE(offered) << overrides.front();
  }
}

TEST_F(Decks, OfAMicroBatchWholePartsAreOffered) {
  using Micros = std::vector<std::string>;
  const auto offered = [&](int micro) {
    const Question q = question(2, 0, {fmt::format("batch.micro={}", micro), "batch.global=192"});
    Micros found;
    for (const Change& change : changes_for(deck_of(q)))
      if (change.overrides.front().starts_with("batch.micro="))
        found.push_back(change.overrides.front().substr(12));
    return found;
  };
  EXPECT_EQ(offered(1), Micros{});
  EXPECT_EQ(offered(2), Micros{"1"});
  EXPECT_EQ(offered(6), (Micros{"1", "3"}));
  EXPECT_EQ(offered(8), (Micros{"1", "4", "2"}));
  EXPECT_EQ(offered(32), (Micros{"1", "16", "8", "4"}));
}

TEST_F(Decks, WhatContradictsTheDeckIsNotTakenForTooLarge) {
  const std::vector<std::string> eight{"optimizer.name=adamw", "precision.moments=fp32"};
  const Question q = question(4, 1000, eight);
  const Fixes fixes = fixes_for(q, Watch(10'000, 60));
  EXPECT_GT(fixes.refused, 0) << "8-bit moments beside a dtype of moments";
  EXPECT_FALSE(cost_if_legal(q, {"optimizer.name=adamw_8bit"}).has_value());
  EXPECT_TRUE(cost_if_legal(q).has_value());
}

TEST_F(Decks, SearchPassesOverWhatTheDeckContradicts) {
  const std::vector<std::string> own{"recompute.mode=selective", "recompute.pieces=[\"norm\"]",
                                     "mesh.pipeline=1"};
  const Search s = search_for(question(4, 0, own), Watch(10'000, 60), 1000);
  for (const char* mode : {"recompute.mode=full", "recompute.mode=selective", "recompute.mode=none"}) {
    EXPECT_TRUE(std::any_of(s.best.begin(), s.best.end(), [&](const Setting& x) {
      return std::count(x.overrides.begin(), x.overrides.end(), mode) > 0;
    })) << mode;
  }
  const auto frugal = frugal_overrides(question(4, 0, own));
  EXPECT_EQ(std::count(frugal.begin(), frugal.end(), "recompute.mode=full"), 1);
  EXPECT_EQ(std::count(frugal.begin(), frugal.end(), "recompute.pieces=[]"), 1);
}

TEST_F(Decks, ReductionsAreNotOverlappedWhereNothingElseFits) {
  const std::vector<std::string> least{"sharding.strategy=FULL_SHARD", "batch.micro=1",
                                       "recompute.mode=full"};
  auto serial = least;
  serial.emplace_back("sharding.overlap_reduce=false");
  const double overlapped = held(cost_of(question(4), least)), bytes = held(cost_of(question(4), serial));
  ASSERT_LT(bytes, overlapped);
  const Search s = search_for(question(4, bytes + 1, {"mesh.pipeline=1", "mesh.tensor=1", "mesh.context=1"}),
                              Watch(10'000, 60));
  ASSERT_FALSE(s.best.empty());
  for (const Setting& x : s.best)
    EXPECT_EQ(x.overrides[4], "sharding.overlap_reduce=false") << command_line(x.overrides);
}

TEST_F(Decks, AnExpiredWatchEndsTheSearch) {
  const Fixes fixes = fixes_for(question(4, 1000), Watch(1000, 0));
  EXPECT_EQ(fixes.ended, Ended::by_clock);
  EXPECT_TRUE(fixes.best.empty());
}

TEST_F(Decks, SearchesEndWhereTheirCandidatesDo) {
  const auto settings = [&](std::int64_t most) {
    return search_for(question(4, 1e9, {"mesh.pipeline=1", "mesh.tensor=1", "mesh.context=1"}),
                      Watch(most, 1e9), 1000);
  };
  const Search all = settings(1000), some = settings(9);
  EXPECT_EQ(all.ended, Ended::not_early);
  EXPECT_EQ(some.ended, Ended::by_count);
  EXPECT_LE(some.tried, 9);
  EXPECT_GT(some.tried, 4);
  EXPECT_LT(some.best.size(), all.best.size());
  const Fixes fixes = fixes_for(question(4, held(cost_of(question(4))) - 1), Watch(3, 1e9));
  EXPECT_EQ(fixes.ended, Ended::by_count);
  EXPECT_LE(fixes.tried + fixes.refused, 3);
  EXPECT_TRUE(fixes.least_ranks.has_value()) << "that search counts by itself";
}

TEST_F(Decks, TextAndJsonSayTheSame) {
  const Plan plan{
      question(4, 1e9), cost_of(question(4, 1e9)), {}, {}, {}, {"data.train = ...: a run needs this"}};
  const auto json = report_json(plan);
  EXPECT_EQ(json["traffic"]["bytes"].get<std::int64_t>(), total_bytes(plan.cost.traffic));
  EXPECT_EQ(json["batch"]["tokens_per_step"].get<std::int64_t>(), config::tokens_per_step(plan.cost.deck));
  EXPECT_TRUE(json["verdict"]["fits"].get<bool>());
  const std::string text = report_text(plan);
  EXPECT_NE(text.find("tokens a step"), std::string::npos);
  EXPECT_EQ(json["notes"].get<std::vector<std::string>>(), plan.notes);
  EXPECT_TRUE(text.ends_with("\nnote: " + plan.notes.front() + "\n")) << text;
  EXPECT_NE(text.find("fits"), std::string::npos);
}

}  // namespace
}  // namespace ztrain::plan::plan_fit_test
