// Jobs of 2 to 64 stages and 1 to 256 micro-batches, under every schedule and strategy: compiled, and proven
// rank by rank and all together. Schedules themselves, without Programs, are followed in pipelines.cpp for
// all of these numbers.

#include <gtest/gtest.h>

#include "program/schedules/middle.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::pipelines_proven_test {
namespace {

constexpr const char* schedules[] = {"gpipe", "1f1b",   "interleaved", "zb-h1",     "zb-h2",
                                     "zb-v",  "v-half", "v-min",       "dualpipe-v"};
constexpr const char* strategies[] = {"FULL_SHARD", "zero1", "SHARD_GRAD_OP", "NO_SHARD", "zero2"};
constexpr int pipelines[] = {2, 3, 4, 8, 16, 32, 64};
constexpr int micro_batches[] = {1, 2, 3, 5, 8, 16, 33, 64, 128, 256};

/// A row is a level of each.
enum Factor : std::size_t { pipeline, schedule, micros, strategy, shard, every_micro, recompute, late, tied };

template <class Levels>
const auto& level(const Levels& levels, const std::vector<int>& row, Factor factor) {
  return levels[static_cast<std::size_t>(row[factor])];
}

struct Point {
  const char* schedule;
  int ranks, micro_batches;

  int stages() const { return ranks * find_schedule(schedule).chunks; }
  /// Forwards of a stage that are compiled, of all ranks together.
  int compiled() const {
    const auto middle = middle_of(find_schedule(schedule), ranks, micro_batches, 1);
    return stages() * (middle ? middle->few : micro_batches);
  }
};

std::string refusal_of(const Point& point, const std::vector<int>& row) {
  JobSpec spec =
      test::spec_on(1, row[shard] + 1, find_strategy(level(strategies, row, strategy)), point.micro_batches);
  spec.mesh[Axis::pipeline] = point.ranks;
  spec.schedule = find_schedule(point.schedule);
  spec.sharding.reduce.every_micro = row[every_micro] == 0;
  spec.recompute.every = row[recompute];
  if (row[late] == 1) spec.pipeline.late_weights = LateWeights::kept;
  return test::refusal([&] { verify_job(test::small_model(point.stages(), row[tied] == 1), spec); });
}

std::string name_of(const Point& point, const std::vector<int>& row) {
  return fmt::format(
      "{}, {} ranks, {} micro-batches, {}, shard {}, every micro-batch {}, recompute {}, late {}, "
      "tied {}",
      point.schedule, point.ranks, point.micro_batches, level(strategies, row, strategy), row[shard] + 1,
      row[every_micro], row[recompute], row[late], row[tied]);
}

/// Jobs of which no more than this is compiled meet in pairs.
constexpr int most_compiled = 600;

TEST(PipelinesProven, InPairsOfAllThatTheyMayHave) {
  const auto point_of = [](const std::vector<int>& row) {
    return Point{level(schedules, row, schedule), level(pipelines, row, pipeline),
                 level(micro_batches, row, micros)};
  };
  const auto count = [](const auto& levels) { return static_cast<int>(std::size(levels)); };
  std::vector<test::Levels> points;
  for (int p = 0; p < count(pipelines); ++p)
    for (int s = 0; s < count(schedules); ++s)
      for (int m = 0; m < count(micro_batches); ++m)
        if (point_of({p, s, m}).compiled() <= most_compiled) points.push_back({p, s, m});
  const auto rows = test::Pairwise(points, {count(strategies), 2, 2, 2, 2, 2}).rows();
  int proven = 0;
  for (const std::vector<int>& row : rows) {
    const std::string refused = refusal_of(point_of(row), row);
    ASSERT_EQ(refused, "") << name_of(point_of(row), row);
    ++proven;
  }
  std::printf("%d jobs proven\n", proven);
  EXPECT_GE(proven, 70);
}

TEST(PipelinesProven, UnderEveryStrategyWithEverySchedule) {
  int proven = 0;
  for (const char* name : schedules)
    for (int s = 0; s < static_cast<int>(std::size(strategies)); ++s)
      for (const Point point : {Point{name, 2, 1}, {name, 4, 6}}) {
        const std::vector<int> row{0, 0, 0, s, 1, 0, point.ranks == 2 ? 1 : 0, 0, 0};
        ASSERT_EQ(refusal_of(point, row), "") << name_of(point, row);
        ++proven;
      }
  EXPECT_EQ(proven, 90);
}

/// The most stages with the most micro-batches.
TEST(PipelinesProven, AtTheCorner) {
  const Point corner{"1f1b", 64, 256};
  const std::vector<int> row{0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(refusal_of(corner, row), "") << name_of(corner, row);
}

}  // namespace
}  // namespace ztrain::program::pipelines_proven_test
