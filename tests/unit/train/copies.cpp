// Which ranks are named whose copies differ from those of others.

#include "train/audits.hpp"

#include <gtest/gtest.h>

namespace ztrain::copies_test {
namespace {

using train::Copies;

const std::vector<std::string> names{"weights of a", "weights of b", "exp_avg of b"};

std::vector<Copies> ranks_with(const std::vector<std::vector<std::uint64_t>>& hashes) {
  std::vector<Copies> copies;
  for (std::size_t i = 0; i < hashes.size(); ++i)
    copies.push_back({static_cast<int>(2 * i), "n" + std::to_string(i), hashes[i]});
  return copies;
}

std::string told_of(const std::vector<std::string>& of, const std::vector<Copies>& copies) {
  return train::describe_differing(of, copies).text;
}

TEST(Copies, ThatAgreeAreNotToldOf) {
  EXPECT_EQ(told_of(names, ranks_with({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}})), "");
}

TEST(Copies, TheFewAreNamed) {
  EXPECT_EQ(told_of(names, ranks_with({{1, 2, 3}, {1, 7, 3}, {1, 2, 3}})),
            "weights of b: rank 2 (n1) has other bytes than the other 2 ranks that hold copies");
  EXPECT_EQ(told_of(names, ranks_with({{1, 2, 9}, {1, 2, 3}, {1, 2, 3}, {1, 2, 8}, {1, 2, 3}})),
            "exp_avg of b: rank 0 (n0) and rank 6 (n3) have other bytes than the other 3 ranks that hold "
            "copies");
}

TEST(Copies, NodesAreNamedOnceWhereTheyAreKnown) {
  auto copies = ranks_with({{1, 2, 9}, {1, 2, 3}, {1, 2, 3}, {1, 2, 8}, {1, 2, 3}});
  EXPECT_EQ(train::describe_differing(names, copies).nodes, "n0,n3");
  copies[3].host = copies[0].host;
  EXPECT_EQ(train::describe_differing(names, copies).nodes, "n0");
  EXPECT_EQ(train::describe_differing(names, ranks_with({{1, 2, 3}, {1, 2, 4}})).nodes, "");
}

TEST(Copies, OfTwoNobodyKnowsWhichIsWrong) {
  EXPECT_EQ(
      told_of(names, ranks_with({{1, 2, 3}, {1, 4, 5}})),
      "weights of b: rank 0 (n0) and rank 2 (n1) have different bytes, and which are wrong is not known "
      "(and so in 1 more)");
}

TEST(Copies, OfManyTheFirstAreNamed) {
  EXPECT_EQ(told_of({"a"}, ranks_with({{1}, {2}, {3}, {4}, {5}, {6}})),
            "a: rank 0 (n0) and rank 2 (n1) and rank 4 (n2) and rank 6 (n3) and 2 more have different bytes, "
            "and which are wrong is not known");
}

}  // namespace
}  // namespace ztrain::copies_test
