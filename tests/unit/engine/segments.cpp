#include "engine/segments.hpp"

#include <gtest/gtest.h>

#include <random>

namespace ztrain::segments_test {

using namespace ztrain::engine;
using engine::Segment;  // not that of a layout

namespace {

constexpr Site kernel{}, waiting{true, true, false}, signalling{true, false, true},
    communication{false, true, true};

TEST(Segments, NoGraphsAndOneGraph) {
  const std::vector<Site> sites{kernel, communication, waiting};
  EXPECT_EQ(segments_of(Graphs::none, sites), (std::vector<Segment>{{0, 3, false}}));
  EXPECT_EQ(segments_of(Graphs::step, sites), (std::vector<Segment>{{0, 3, true}}));
  EXPECT_TRUE(segments_of(Graphs::compute, {}).empty());
}

TEST(Segments, StretchesBetweenCommunications) {
  const std::vector<Site> sites{kernel, kernel, communication, kernel, kernel, kernel};
  EXPECT_EQ(segments_of(Graphs::compute, sites),
            (std::vector<Segment>{{0, 2, true}, {2, 3, false}, {3, 6, true}}));
}

TEST(Segments, AWaitBeginsAndASignalEndsOne) {
  const std::vector<Site> sites{waiting, kernel, signalling, kernel, kernel, waiting, kernel};
  EXPECT_EQ(segments_of(Graphs::compute, sites),
            (std::vector<Segment>{{0, 3, true}, {3, 5, true}, {5, 7, true}}));
}

TEST(Segments, OneKernelIsNoGraph) {
  const std::vector<Site> sites{kernel, communication, signalling, communication, waiting};
  EXPECT_EQ(segments_of(Graphs::compute, sites), (std::vector<Segment>{{0, 5, false}}));
}

TEST(Segments, AnyProgramIsCoveredInOrder) {
  std::mt19937 random(5);
  for (int n = 0; n < 200; ++n) {
    std::vector<Site> sites(random() % 40);
    for (Site& s : sites) s = {random() % 4 > 0, random() % 4 == 0, random() % 4 == 0};
    ztrain::program::OpId next = 0;
    for (const Segment& s : segments_of(Graphs::compute, sites)) {
      EXPECT_EQ(s.begin, next);
      next = s.end;
      if (!s.captured) continue;
      EXPECT_GE(s.end - s.begin, 2);
      for (auto i = static_cast<std::size_t>(s.begin); i < static_cast<std::size_t>(s.end); ++i) {
        EXPECT_TRUE(sites[i].kernel);
        EXPECT_TRUE(!sites[i].waits || static_cast<int>(i) == s.begin);
        EXPECT_TRUE(!sites[i].signals || static_cast<int>(i) == s.end - 1);
      }
    }
    EXPECT_EQ(next, static_cast<int>(sites.size()));
  }
}

}  // namespace
}  // namespace ztrain::segments_test
