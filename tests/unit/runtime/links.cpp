// Which node is slow, of links that the tests give, and that each pair of nodes meets once.

#include "runtime/session/links.hpp"

#include <gtest/gtest.h>

#include <set>

namespace ztrain::links_test {
namespace {

TEST(Links, EachTwoNodesMeetOnce) {
  for (const int nodes : {2, 3, 4, 5, 8, 13}) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < runtime::rounds_of(nodes); ++round)
      for (int node = 0; node < nodes; ++node) {
        const int other = runtime::partner_of(node, round, nodes);
        if (other < 0) continue;
        ASSERT_LT(other, nodes);
        ASSERT_NE(other, node);
        EXPECT_EQ(runtime::partner_of(other, round, nodes), node) << nodes << " nodes, round " << round;
        EXPECT_TRUE(met.insert({node, other}).second) << node << " meets " << other << " again";
      }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(nodes) * static_cast<std::size_t>(nodes - 1));
  }
}

runtime::Links links_of(std::vector<double> speeds) {
  runtime::Links links;
  for (std::size_t node = 0; node < speeds.size(); ++node) {
    links.hosts.push_back("n" + std::to_string(node));
    links.bytes_per_second.emplace_back();
    for (std::size_t other = 0; other < speeds.size(); ++other)
      links.bytes_per_second.back().push_back(std::min(speeds[node], speeds[other]));
  }
  return links;
}

TEST(Links, ASlowNodeIsSlowToAll) {
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9, 11e9, 4e9, 10e9}), 0.5), std::vector<int>{2});
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9, 11e9, 6e9, 10e9}), 0.5), std::vector<int>{});
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9, 11e9, 4e9, 10e9}), 0.3), std::vector<int>{});
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9, 10e9, 1e9}), 0.5), std::vector<int>{2});
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9, 1e9}), 0.5), std::vector<int>{})
      << "neither is known to be the slow one";
  EXPECT_EQ(runtime::slow_nodes(links_of({10e9}), 0.5), std::vector<int>{});
}

using Row = std::vector<double>;

TEST(Links, ASlowNodeIsMeasuredAgain) {
  std::vector<std::vector<double>> all{{10e9, 1e9, 10e9}, {9e9, 2e9, 12e9}, {1e9, 8e9, 1e9}};
  int times = 0;
  const auto measure = [&] { return links_of(all.at(static_cast<std::size_t>(times++))); };
  const runtime::Links links = runtime::fastest_of(measure, 0.5);
  EXPECT_EQ(times, 3);
  EXPECT_EQ(links.bytes_per_second,
            (std::vector<Row>{{10e9, 2e9, 10e9}, {2e9, 8e9, 2e9}, {10e9, 2e9, 12e9}}));
  times = 0;
  all = {{10e9, 1e9, 10e9}, {9e9, 8e9, 9e9}, {}};
  EXPECT_EQ(runtime::slow_nodes(runtime::fastest_of(measure, 0.5), 0.5), std::vector<int>{});
  EXPECT_EQ(times, 2) << "the slowness has passed";
  times = 0;
  all = {{10e9, 1e9, 10e9}, {10e9, 1e9, 10e9}, {10e9, 1e9, 10e9}, {10e9, 10e9, 10e9}};
  EXPECT_EQ(runtime::slow_nodes(runtime::fastest_of(measure, 0.5), 0.5), std::vector<int>{1}) << "it has not";
  times = 0;
  all = {{10e9, 9e9, 10e9}};
  runtime::fastest_of(measure, 0.5);
  EXPECT_EQ(times, 1);
}

TEST(Links, TheSlowNodeIsNamedOnALineOfItsOwn) {
  const std::string text = runtime::links_text(links_of({10e9, 11e9, 1e9, 10e9}), 0.5);
  EXPECT_NE(text.find("\nslow node n2: 1.00 GB/s on its fastest link, where 10.00 GB/s is usual\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(runtime::links_text(links_of({1e9, 1e9, 1e9}), 0.5).find("slow node"), std::string::npos);
}

}  // namespace
}  // namespace ztrain::links_test
