// The messages between the ranks of a pipeline, planned again in another way: which turn makes what another
// needs is told by the stages, and what a rank knows of another by a search through all that came before.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tests/support/drawn_order.hpp"
#include "tests/support/schedules.hpp"

namespace ztrain::program::pipeline_messages_test {
namespace {

/// A turn by its number among those of its rank.
struct Place {
  int rank = 0, turn = 0;
  bool operator==(const Place&) const = default;
};

class Turns {
 public:
  explicit Turns(const PipelineOrder& order) : order_(order) {
    for (int rank = 0; rank < order.map.ranks; ++rank)
      for (int turn = 0; turn < count(rank); ++turn)
        if (const Turn& t = at({rank, turn}); t.kind != TurnKind::backward_weights)
          made_[{t.kind == TurnKind::forward, order.map.stage_of(rank, t.chunk), t.micro}] = {rank, turn};
  }

  int count(int rank) const { return static_cast<int>(order_.turns[static_cast<std::size_t>(rank)].size()); }

  /// The turn of another rank that makes what this one needs, if there is one.
  std::optional<Place> maker(Place place) const {
    const Turn& turn = at(place);
    if (turn.kind == TurnKind::backward_weights) return std::nullopt;
    const bool forward = turn.kind == TurnKind::forward;
    const int stage = order_.map.stage_of(place.rank, turn.chunk) + (forward ? -1 : 1);
    if (stage < 0 || stage == order_.map.stages()) return std::nullopt;
    const Place made = made_.at({forward, stage, turn.micro});
    return made.rank == place.rank ? std::nullopt : std::optional(made);
  }

  /// What a turn sends.
  MessageId message_of(Place maker) const {
    const Turn& turn = at(maker);
    const int stage = order_.map.stage_of(maker.rank, turn.chunk);
    if (turn.kind == TurnKind::forward) return {stage + 1, false, turn.micro};
    return {stage, true, turn.micro};
  }

  /// Whether `later` cannot begin before `earlier` has.
  bool follows(Place later, Place earlier) const {
    std::vector<std::vector<bool>> seen;
    for (int rank = 0; rank < order_.map.ranks; ++rank) seen.emplace_back(count(rank), false);
    std::vector<Place> left{later};
    while (!left.empty()) {
      const Place place = left.back();
      left.pop_back();
      if (place.turn < 0 || seen[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.turn)])
        continue;
      if (place == earlier) return true;
      seen[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.turn)] = true;
      left.push_back({place.rank, place.turn - 1});
      if (const auto made = maker(place)) left.push_back(*made);
    }
    return false;
  }

 private:
  const Turn& at(Place p) const {
    return order_.turns[static_cast<std::size_t>(p.rank)][static_cast<std::size_t>(p.turn)];
  }

  const PipelineOrder& order_;
  std::map<std::tuple<bool, int, int>, Place> made_;  ///< by forward or not, stage and micro-batch
};

/// Messages to a rank begin in the order of their numbers, and those of one sender in its order.
void expect_in_order(const MessagePlan& plan, const std::map<MessageId, Place>& makers) {
  std::vector<std::optional<MessageId>> by_number(plan.number.size());
  for (const auto& [id, number] : plan.number) by_number.at(static_cast<std::size_t>(number)) = id;
  int begun = 0;
  std::map<int, int> sent;  // by sender, its turn
  for (const auto& id : by_number) {
    ASSERT_TRUE(id) << "a number is there twice";
    EXPECT_GE(plan.begins.at(*id), begun);
    begun = plan.begins.at(*id);
    const Place maker = makers.at(*id);
    const auto [last, first] = sent.try_emplace(maker.rank, -1);
    EXPECT_GT(maker.turn, last->second);
    last->second = maker.turn;
  }
}

/// Receives begin in time. What is sent is waited for behind the first turn by which its receiver has begun.
void expect_planned(const PipelineOrder& order) {
  const Turns turns(order);
  std::vector<MessagePlan> plans;
  for (int rank = 0; rank < order.map.ranks; ++rank) plans.push_back(plan_messages(order, rank));
  std::map<MessageId, Place> makers;
  for (int rank = 0; rank < order.map.ranks; ++rank) {
    const MessagePlan& plan = plans[static_cast<std::size_t>(rank)];
    std::map<MessageId, Place> to_rank;
    for (int turn = 0; turn < turns.count(rank); ++turn) {
      const auto maker = turns.maker({rank, turn});
      if (!maker) continue;
      const MessageId id = turns.message_of(*maker);
      to_rank[id] = *maker;
      const int begun = plan.begins.at(id);
      EXPECT_LE(begun, turn) << "boundary " << id.boundary << ", micro-batch " << id.micro;
      int until = maker->turn;
      while (until + 1 < turns.count(maker->rank) && !turns.follows({maker->rank, until}, {rank, begun}))
        ++until;
      EXPECT_EQ(plans[static_cast<std::size_t>(maker->rank)].received.at(id), until)
          << "boundary " << id.boundary << ", gradient " << id.gradient << ", micro-batch " << id.micro;
    }
    EXPECT_EQ(plan.begins.size(), to_rank.size());
    EXPECT_EQ(plan.number.size(), to_rank.size());
    expect_in_order(plan, to_rank);
    makers.merge(to_rank);
  }
  std::size_t received = 0;
  for (const MessagePlan& plan : plans) received += plan.received.size();
  EXPECT_EQ(received, makers.size());
}

TEST(PipelineMessages, AreBegunAndReceivedAsTheTurnsOfSchedulesLetThem) {
  for (const char* name :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"})
    for (const int ranks : {2, 5}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name, ranks));
      PipelineOrder order = test::order_of(find_schedule(name), ranks, ranks + 3);
      order.ahead = ranks == 2 ? 1 : 3;
      expect_planned(order);
    }
}

TEST(PipelineMessages, AreBegunAndReceivedAsTheTurnsOfAnyOrderLetThem) {
  std::uint64_t seed = 0;
  for (const StageMap map :
       {StageMap{2, 1, false}, {3, 1, false}, {2, 2, false}, {4, 2, false}, {2, 2, true}, {3, 2, true}})
    for (const int ahead : {0, 1, 2, 4})
      for (int draws = 0; draws < 3; ++draws) {
        SCOPED_TRACE(fmt::format("draw {}, {} ranks, {} ahead", ++seed, map.ranks, ahead));
        PipelineOrder order = test::DrawnOrder(map, 3 + draws, seed).draw();
        order.ahead = ahead;
        expect_planned(order);
      }
}

}  // namespace
}  // namespace ztrain::program::pipeline_messages_test
