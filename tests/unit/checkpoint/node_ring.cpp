// Who holds what of whom: of every file each byte goes to the next node once, and comes from where it was
// sent.

#include "checkpoint/neighbours/node_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/save_plan.hpp"

namespace ztrain::checkpoint::node_ring_test {
namespace {

constexpr std::int64_t bytes = 1001;

void expect_whole(const NodeRing& ring) {
  const int ranks = static_cast<int>(ring.node_of().size());
  std::vector<std::vector<int>> copied(static_cast<std::size_t>(ring.nodes()), std::vector<int>(bytes));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto lane = ring.receives(rank, bytes);
    if (!lane) continue;
    const int from = ring.node_of(lane->rank);
    EXPECT_NE(from, ring.node_of(rank)) << "a copy on the same node goes with it";
    EXPECT_EQ(ring.next(from), ring.node_of(rank));
    const auto sent = ring.sends(lane->rank, bytes);
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->rank, rank);
    EXPECT_EQ(sent->begin, lane->begin);
    EXPECT_EQ(sent->end, lane->end);
    EXPECT_LE(lane->end - lane->begin, ring.longest_lane(from, bytes));
    for (std::int64_t b = lane->begin; b < lane->end; ++b)
      ++copied[static_cast<std::size_t>(from)][static_cast<std::size_t>(b)];
  }
  for (const auto& of_node : copied) EXPECT_EQ(std::ranges::count(of_node, 1), bytes);
}

TEST(NodeRing, BringsEachByteToTheNextNodeOnce) {
  expect_whole(NodeRing({0, 1}));
  expect_whole(NodeRing({0, 0, 1, 1}));
  expect_whole(NodeRing({0, 0, 0, 1, 1, 1}));
  expect_whole(NodeRing({0, 0, 0, 1, 2, 2}));
  // Ranks need not be neighbours, as with --distribution=cyclic.
  expect_whole(NodeRing({0, 1, 2, 0, 1, 2, 0}));
}

TEST(NodeRing, KnowsItsNeighbours) {
  const NodeRing ring({0, 0, 1, 2, 2});
  EXPECT_EQ(ring.nodes(), 3);
  EXPECT_EQ(ring.next(2), 0);
  EXPECT_EQ(ring.before(0), 2);
  EXPECT_EQ(ring.ranks_of(2), (std::vector<int>{3, 4}));
  EXPECT_TRUE(ring.is_first(2));
  EXPECT_FALSE(ring.is_first(4));
  EXPECT_FALSE(ring.sends(1, bytes)) << "node 1 has one rank to receive";
}

/// Each byte that a rank saves is on its own node and, with several nodes, on the next one.
TEST(NodeRing, HoldsWhatIsSavedOnTheNodeAndOnTheOneBefore) {
  const std::vector<std::int64_t> saved{1, 10, 100, 1000, 10000};
  for (const std::vector<int>& node_of :
       {std::vector<int>{0, 0, 1, 2, 2}, {0, 1, 2, 0, 1}, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 0}}) {
    const NodeRing ring(node_of);
    std::vector<std::int64_t> own(static_cast<std::size_t>(ring.nodes())), before = own;
    for (std::size_t rank = 0; rank < node_of.size(); ++rank) {
      own[static_cast<std::size_t>(node_of[rank])] += saved[rank];
      if (ring.nodes() > 1) before[static_cast<std::size_t>(ring.next(node_of[rank]))] += saved[rank];
    }
    for (int node = 0; node < ring.nodes(); ++node) {
      const NodeRing::Held held = ring.held(node, saved);
      EXPECT_EQ(held.own, own[static_cast<std::size_t>(node)]) << node;
      EXPECT_EQ(held.before, before[static_cast<std::size_t>(node)]) << node;
    }
  }
}

TEST(NodeRing, OfOneNodeSendsNothing) {
  const NodeRing ring({0, 0, 0});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(ring.sends(rank, bytes));
    EXPECT_FALSE(ring.receives(rank, bytes));
  }
  EXPECT_EQ(ring.longest_lane(0, bytes), 0);
}

/// The files of all ranks, by rank; -1: none.
std::vector<int> files_of(const std::vector<std::int64_t>& writers, const std::vector<std::int64_t>& nodes,
                          int wanted) {
  return deal_files(writers, nodes, wanted).of_rank;
}

TEST(ShardFiles, RanksOfANodeShareAFileHoweverTheyAreNumbered) {
  const std::vector<std::int64_t> all(6, 1), in_turns{0, 1, 2, 0, 1, 2};
  EXPECT_EQ(files_of(all, in_turns, 0), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(deal_files(all, in_turns, 0).count, 3);
  EXPECT_EQ(files_of({1, 1, 1, 1, 1, 0}, {0, 0, 0, 0, 4, 4}, 0), (std::vector{0, 0, 0, 0, 1, -1}));
  EXPECT_EQ(files_of({1, 0, 0, 1, 0, 0}, in_turns, 0), (std::vector{0, -1, -1, 0, -1, -1}));
  EXPECT_EQ(deal_files({1, 0, 0, 1, 0, 0}, in_turns, 0).count, 1) << "nodes that write nothing have none";
  EXPECT_EQ(files_of({0, 1, 1}, {0, 1, 2}, 0), (std::vector{-1, 0, 1}));
  EXPECT_EQ(files_of(all, in_turns, 2), (std::vector{0, 0, 1, 0, 1, 1})) << "node 0, node 1's halves, node 2";
  EXPECT_EQ(files_of(all, in_turns, 100), (std::vector{0, 2, 4, 1, 3, 5})) << "no more files than writers";
}

TEST(ShardFiles, ManyNodesShareThem) {
  const std::vector<std::int64_t> all(600, 1);
  std::vector<std::int64_t> nodes(600);
  std::iota(nodes.begin(), nodes.end(), 0);
  const std::vector<int> own = files_of(all, nodes, 0);
  EXPECT_TRUE(std::ranges::is_sorted(own));
  EXPECT_EQ(own.front(), 0);
  EXPECT_EQ(own.back(), max_files - 1);
  EXPECT_EQ(deal_files(all, nodes, 0).count, max_files);
}

}  // namespace
}  // namespace ztrain::checkpoint::node_ring_test
