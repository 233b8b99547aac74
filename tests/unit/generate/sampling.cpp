// The choice of the next token.

#include "generate/sampling.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::generate::sampling_test {
namespace {

// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

std::array<double, 4> frequencies(const Sampling& s) {
  std::array<double, 4> counts{};
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i)
    counts[static_cast<std::size_t>(
        sample(logits, s, uniform(philox(3, 0, static_cast<std::uint64_t>(i))[0])))] += 1.0 / draws;
  return counts;
}

void expect_frequencies(const Sampling& s, const std::array<double, 4>& expected) {
  const auto found = frequencies(s);
  for (std::size_t i = 0; i < 4; ++i) {
    if (expected[i] == 0)
      EXPECT_EQ(found[i], 0) << i;
    else
      EXPECT_NEAR(found[i], expected[i], 0.015) << i;
  }
}

TEST(Sampling, FollowsTheProbabilities) {
  expect_frequencies({1, 0, 1}, {0.1, 0.4, 0.2, 0.3});
}

TEST(Sampling, TemperatureSharpens) {
  const double sum = 0.01 + 0.16 + 0.04 + 0.09;
  expect_frequencies({0.5, 0, 1}, {0.01 / sum, 0.16 / sum, 0.04 / sum, 0.09 / sum});
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  expect_frequencies({1, 2, 1}, {0, 4.0 / 7, 0, 3.0 / 7});
  expect_frequencies({1, 1, 1}, {0, 1, 0, 0});
  expect_frequencies({1, 9, 1}, {0.1, 0.4, 0.2, 0.3});
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_frequencies({1, 0, 0.39}, {0, 1, 0, 0});
  expect_frequencies({1, 0, 0.5}, {0, 4.0 / 7, 0, 3.0 / 7});
  expect_frequencies({1, 0, 0.85}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
}

TEST(Sampling, TopPIsOfWhatTopKLeaves) {
  expect_frequencies({1, 2, 0.55}, {0, 1, 0, 0});
}

TEST(Sampling, ALargeNucleusIsFoundInSteps) {
  // Equal logits: the nucleus of p is the first p of all tokens, far beyond the first that are sorted.
  const std::vector<float> flat(5000, 1.0f);
  std::int32_t most = 0;
  for (int i = 0; i < 3000; ++i)
    most = std::max(most, sample(flat, {1, 0, 0.5}, uniform(philox(3, 0, static_cast<std::uint64_t>(i))[0])));
  EXPECT_LT(most, 2501);
  EXPECT_GT(most, 2450);
}

TEST(Sampling, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample(logits, {0, 0, 1}, 0.99), 1);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3}, {0, 0, 1}, 0.99), 1);
}

TEST(Sampling, EveryDrawIsAToken) {
  for (const double draw : {1e-300, 0.5, 1 - 1e-16}) {
    const std::int32_t token = sample(logits, {1, 0, 1}, draw);
    EXPECT_TRUE(token >= 0 && token < 4) << draw;
  }
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(sample(std::vector<float>{minus_infinity, 0, minus_infinity}, {1, 0, 0.999999}, 0.999999), 1);
}

TEST(Sampling, RefusesNaNAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sample(std::vector<float>{1, nan}, {0, 0, 1}, 0.5), Error);
  EXPECT_THROW(sample(std::vector<float>{nan, 1}, {1, 0, 1}, 0.5), Error);
  EXPECT_THROW(sample(std::vector<float>{1, infinity}, {0, 0, 1}, 0.5), Error);
  EXPECT_THROW(sample({}, {0, 0, 1}, 0.5), Error);
  const std::string told = test::error_of([&] { sample(std::vector<float>{nan}, {0, 0, 1}, 0.5); });
  EXPECT_NE(told.find("--dtype"), std::string::npos) << told;
}

}  // namespace
}  // namespace ztrain::generate::sampling_test
