// What is known of a deck before it is compiled: the room that it leaves, and the changes that it is offered.

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/fit.hpp"
#include "plan/search.hpp"
#include "tests/support/plan_decks.hpp"

namespace ztrain::plan::plan_room_test {
namespace {

using test::Decks;

/// Each tier's limit by itself: the other one is far away.
TEST_F(Decks, TheRoomThatIsLeftIsOfBothTiers) {
  Question q = question(4, 0);
  const Cost cost = cost_of(q);
  const auto room_of_device = [&](double times) {
    q.limits.device_memory = times * held(cost);
    q.limits.host_memory = 1e15;
    return room_for(q, {});
  };
  EXPECT_EQ(room_of_device(0.5), Room::none);
  EXPECT_EQ(room_of_device(1.02), Room::little);
  EXPECT_EQ(room_of_device(2), Room::ample);
  q.limits.device_memory = 0;
  const double node_needed = verdict_of(cost_of(q)).node_needed;
  const auto room_of_node = [&](double times) {
    q.limits.host_memory = times * node_needed;
    return room_for(q, {});
  };
  EXPECT_EQ(room_of_node(0.5), Room::none);
  EXPECT_EQ(room_of_node(1.02), Room::little);
  EXPECT_EQ(room_of_node(2), Room::ample);
}

/// The last stage holds most: the first alone would fit.
TEST_F(Decks, OneStageThatIsTooLargeLeavesNoRoom) {
  const std::vector<std::string> staged{"mesh.pipeline=2", "mesh.shard=1", "pipeline.layers=[1, 3]"};
  const Cost cost = cost_of(question(2, 0, staged));
  ASSERT_EQ(cost.memory.size(), 2);
  const auto of = [&](int stage) {
    return static_cast<double>(cost.memory[static_cast<std::size_t>(stage)].total(program::Tier::device));
  };
  ASSERT_GT(of(1), 1.2 * of(0));
  EXPECT_EQ(room_for(question(2, (of(0) + of(1)) / 2, staged), {}), Room::none);
  EXPECT_EQ(room_for(question(2, 1.3 * of(1), staged), {}), Room::ample);
}

TEST_F(Decks, ADeckThatDoesNotGoWithItsRanksLeavesNone) {
  EXPECT_EQ(room_for(question(3, 1e12), {}), Room::none);
  EXPECT_EQ(room_for(question(3, 1e12), {}, true), Room::ample) << "with another batch";
}

TEST_F(Decks, SchedulesAreOfferedWhatTheyLack) {
  const auto offered = [&](const char* schedule, const char* override) {
    const std::vector<Change> all =
        changes_for(question(2, 1, {"mesh.pipeline=2", std::string("pipeline.schedule=") + schedule}));
    return std::ranges::any_of(all, [&](const Change& c) { return c.overrides.front() == override; });
  };
  struct Row {
    const char* schedule;
    bool plain, late;   ///< 1f1b; what late gradients of weights are offered
    bool least = true;  ///< v-min
  };
  for (const Row& row : {Row{"gpipe", true, false},
                         {"interleaved", true, false},
                         {"1f1b", false, false},
                         {"zb-h1", true, true},
                         {"zb-v", true, true},
                         {"v-min", true, true, false}}) {
    EXPECT_EQ(offered(row.schedule, "pipeline.schedule=1f1b"), row.plain) << row.schedule;
    EXPECT_EQ(offered(row.schedule, "pipeline.schedule=v-min"), row.least) << row.schedule;
    EXPECT_EQ(offered(row.schedule, "sharding.gradient_accumulation=no_sync"), row.late) << row.schedule;
    EXPECT_EQ(offered(row.schedule, "pipeline.late_weights=kept"), row.late) << row.schedule;
  }
}

/// Of three ranks two are on the first node, and the third has the links of its node for itself.
TEST_F(Decks, WhatReuseCostsIsSaidOfTheRankThatTakesLongest) {
  const Question q = question(3, 0,
                              {"batch.global=48", "cluster.ranks_per_node=2", "cluster.latency=0",
                               "cluster.inter_node_bandwidth=0.01", "cluster.peak_tflops=1"});
  const Cost cost = cost_of(q);
  EXPECT_LE(cost.seconds_without_reuse, cost.step.seconds);
  EXPECT_GT(cost.seconds_without_reuse, 0.9 * cost.step.seconds);
}

TEST_F(Decks, PartsOfLongSequencesAreOffered) {
  const std::vector<std::string> tiny{"model.hidden_size=32", "model.num_hidden_layers=1", "batch.micro=1",
                                      "recompute.mode=full"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), tiny.begin(), tiny.end());
    return question(4, 0, more);
  };
  const auto offered = [&](const std::vector<std::string>& more) {
    std::vector<std::string> found;
    for (const Change& change : changes_for(deck_of(with(more))))
      if (is_tiling(change)) found.push_back(change.overrides.front());
    return found;
  };
  EXPECT_TRUE(offered({"data.sequence=8000"}).empty()) << "parts would be short";
  EXPECT_EQ(offered({"data.sequence=8192"}), std::vector<std::string>{"recompute.tiles=8"});
  EXPECT_EQ(offered({"data.sequence=32768", "recompute.tiles=8"}),
            std::vector<std::string>{"recompute.tiles=32"});
  Question q = with({"data.sequence=8192"});
  const double whole = held(cost_of(q)), parts = held(cost_of(q, {"recompute.tiles=8"}));
  ASSERT_LT(parts, whole);
  q.limits.device_memory = (whole + parts) / 2;
  const Fixes fixes = fixes_for(q, Watch(10'000, 60), 100);
  EXPECT_TRUE(std::ranges::any_of(fixes.best, [](const Fix& fix) {
    return fix.effect == Effect::rounding && fix.overrides == std::vector<std::string>{"recompute.tiles=8"};
  }));
  const Search search = search_for(q, Watch(10'000, 60));
  EXPECT_TRUE(std::ranges::any_of(search.best, [](const Setting& x) {
    return x.effect == Effect::rounding && std::ranges::count(x.overrides, "recompute.tiles=8") > 0;
  }));
}

}  // namespace
}  // namespace ztrain::plan::plan_room_test
