// How long schedules wait where forwards and the two halves of backwards take what they took on GPUs, and
// messages take time, against the rates that others found: Qi et al., "Zero Bubble Pipeline Parallelism",
// 2023 (arXiv 2401.10241), table 5, with the milliseconds of its table 9.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/support/schedules.hpp"

namespace ztrain::program::bubble_rates_test {
namespace {

using test::Timeline;
using test::TurnCosts;

struct Row {
  const char* model;
  int ranks, micro_batches;
  /// Of every rank, interleaved: the model's layers, embedding and head counted as one each, are dealt out
  /// one by one.
  int chunks;
  TurnCosts costs;  ///< of a whole rank
  double one_forward_one_backward = 0, interleaved = 0, h1 = 0, h2 = 0;
};

/// The paper's searched schedule of the same memory, ZB-1p, comes to the rates of ZB-H1.
constexpr Row rows[] = {
    {"1.5B", 8, 24, 3, {18.522, 18.086, 9.337, 0.601}, 0.2431, 0.1055, 0.1585, 0.1083},
    {"1.5B", 8, 32, 3, {18.513, 18.086, 9.331, 0.626}, 0.1985, 0.0818, 0.1242, 0.0837},
    {"1.5B", 8, 64, 3, {18.546, 18.097, 9.321, 0.762}, 0.124, 0.0443, 0.0674, 0.0444},
    {"6.2B", 8, 24, 4, {29.718, 29.444, 19.927, 0.527}, 0.2347, 0.0808, 0.1323, 0.0698},
    {"6.2B", 8, 32, 4, {29.802, 29.428, 19.53, 0.577}, 0.1898, 0.0628, 0.1045, 0.0559},
    {"6.2B", 8, 64, 4, {29.935, 29.621, 19.388, 0.535}, 0.1091, 0.032, 0.0554, 0.0294},
    {"14.6B", 16, 48, 3, {11.347, 11.248, 8.132, 0.377}, 0.2552, 0.1104, 0.1397, 0.0672},
    {"14.6B", 16, 64, 3, {11.307, 11.254, 8.101, 0.379}, 0.2082, 0.0852, 0.1088, 0.0516},
    {"14.6B", 16, 128, 3, {11.325, 11.308, 8.109, 0.378}, 0.1251, 0.0445, 0.0576, 0.0266},
    {"28.3B", 32, 96, 2, {10.419, 10.207, 7.715, 0.408}, 0.2646, 0.1493, 0.1421, 0.0641},
    {"28.3B", 32, 128, 2, {10.408, 10.204, 7.703, 0.408}, 0.2168, 0.1164, 0.1106, 0.049},
    {"28.3B", 32, 256, 2, {10.402, 10.248, 7.698, 0.46}, 0.1352, 0.0624, 0.0594, 0.0257},
};

/// What of the time is no work of the rank that takes longest from its first turn to its last.
double rate_of(const Row& row, const char* name, int chunks) {
  Schedule schedule = find_schedule(name);
  schedule.chunks = chunks;
  const auto part = [&](double seconds) { return seconds / chunks; };
  const TurnCosts& c = row.costs;
  const Timeline line = test::even(test::order_of(schedule, row.ranks, row.micro_batches),
                                   {part(c.forward), part(c.inputs), part(c.weights), c.message});
  double longest = 0;
  for (const auto& slots : line.ranks) longest = std::max(longest, slots.back().end - slots.front().begin);
  return 1 - row.micro_batches * (c.forward + c.inputs + c.weights) / longest;
}

/// The rates are those of "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362) and its authors'
/// code.
TEST(BubbleRates, OfBlocksAreHalfAndTwoThirdsOfThatOf1f1b) {
  for (const int ranks : {8, 9, 16, 32, 33}) {
    const Row even{"", ranks, 3 * ranks, 2, {}};
    const double bubble = rate_of(even, "1f1b", 1);
    EXPECT_NEAR(rate_of(even, "v-half", 2), bubble / 2, 0.016) << ranks;
    EXPECT_NEAR(rate_of(even, "v-min", 2), bubble * 2 / 3, 0.016) << ranks;
  }
}

TEST(BubbleRates, AreThoseOfTheZeroBubblePaper) {
  for (const Row& row : rows) {
    SCOPED_TRACE(fmt::format("{}, {} micro-batches", row.model, row.micro_batches));
    constexpr double printed = 0.0001;  // in four digits, of times in five
    EXPECT_NEAR(rate_of(row, "1f1b", 1), row.one_forward_one_backward, printed);
    EXPECT_NEAR(rate_of(row, "zb-h1", 1), row.h1, printed);
    EXPECT_NEAR(rate_of(row, "zb-h2", 1), row.h2, printed);
    // How its messages count is not said.
    EXPECT_NEAR(rate_of(row, "interleaved", row.chunks), row.interleaved, 0.004);
  }
}

}  // namespace
}  // namespace ztrain::program::bubble_rates_test
