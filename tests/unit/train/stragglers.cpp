// Which ranks are named for taking longer than the others.

#include "train/stragglers.hpp"

#include <gtest/gtest.h>

namespace ztrain::stragglers_test {
namespace {

using train::describe_stragglers;
using train::RankBusy;

std::vector<RankBusy> ranks_with(std::vector<double> forward, int per_stage = 100) {
  std::vector<RankBusy> ranks;
  for (std::size_t r = 0; r < forward.size(); ++r)
    ranks.push_back({"n" + std::to_string(r / 2), static_cast<int>(r) / per_stage, {0, forward[r], 20, 1}});
  return ranks;
}

TEST(Stragglers, AreNamedWithTheirNode) {
  EXPECT_EQ(describe_stragglers(ranks_with({10, 10, 10.5, 15, 10}), 10, 50),
            "forward: rank 3 (n1) 1.5 s a step, where 1 s is usual");
  EXPECT_EQ(describe_stragglers(ranks_with({10, 10, 10.5, 12.9, 10}), 10, 50), "")
      << "1.3 times what is usual";
  EXPECT_EQ(describe_stragglers(ranks_with({10, 10, 10.5, 15, 10}), 10, 251), "") << "2% of a step";
}

TEST(Stragglers, TheSlowestComeFirst) {
  EXPECT_EQ(
      describe_stragglers(ranks_with({10, 14, 10, 16, 10, 15, 10, 14, 10, 10}), 1, 50),
      "forward: rank 3 (n1) 16 s a step, where 10 s is usual, rank 5 (n2) 15 s a step, where 10 s is usual, "
      "rank 7 (n3) 14 s a step, where 10 s is usual, and 1 more");
}

TEST(Stragglers, PhasesAreComparedOneByOne) {
  auto ranks = ranks_with({10, 10, 10, 10});
  ranks[2].seconds[0] = 30;
  ranks[1].seconds[3] = 5;
  EXPECT_EQ(
      describe_stragglers(ranks, 10, 50),
      "reading data: rank 2 (n1) 3 s a step, where 0 s is usual; optimizer: rank 1 (n0) 0.5 s a step, where "
      "0.1 s is usual");
}

TEST(Stragglers, StagesOfAPipelineHaveOtherWork) {
  EXPECT_EQ(describe_stragglers(ranks_with({10, 10, 30, 30}, 2), 10, 50), "");
  EXPECT_EQ(describe_stragglers(ranks_with({10, 10, 30, 60}, 2), 10, 50),
            "forward: rank 3 (n1) 6 s a step, where 3 s is usual");
}

}  // namespace
}  // namespace ztrain::stragglers_test
