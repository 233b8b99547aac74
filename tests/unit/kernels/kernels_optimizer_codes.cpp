// The 8-bit codes of adamw_8bit, and AdamW on states that are stored so.

#include <gtest/gtest.h>

#include <algorithm>

#include "optim/code_map.hpp"
#include "tests/support/optimizer_job.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_optimizer_codes_test {
namespace {

using namespace ztrain::test;
using optim::encode;
using optim::SignedCode;
using optim::UnsignedCode;

/// Magnitudes over the map's seven decades and below, dense, with the ends of decades among them.
std::vector<float> magnitudes() {
  std::vector<float> values;
  for (double x = 1e-9; x <= 1; x *= 1.0007) values.push_back(static_cast<float>(x));
  for (int decade = -9; decade <= 0; ++decade)
    for (const double nudge : {1 - 1e-6, 1.0, 1 + 1e-6})
      values.push_back(static_cast<float>(std::min(1.0, std::pow(10, decade) * nudge)));
  return values;
}

template <class Codec>
double distance(float x, int code) {
  return std::abs(static_cast<double>(x) - Codec::decode(static_cast<std::uint8_t>(code)));
}

TEST(Codes, RiseFromZeroToOne) {
  EXPECT_EQ(SignedCode::decode(0), 0);
  EXPECT_EQ(UnsignedCode::decode(0), 0);
  EXPECT_EQ(SignedCode::decode(127), 1);
  EXPECT_EQ(SignedCode::decode(255), -1);
  EXPECT_EQ(UnsignedCode::decode(255), 1);
  for (int c = 1; c < 256; ++c) {
    const auto code = static_cast<std::uint8_t>(c);
    EXPECT_GT(UnsignedCode::decode(code), UnsignedCode::decode(static_cast<std::uint8_t>(c - 1)));
    const float magnitude = SignedCode::decode(static_cast<std::uint8_t>(c % 128));
    EXPECT_EQ(SignedCode::decode(code), c < 128 ? magnitude : -magnitude);
    if (c < 128) {
      EXPECT_GT(magnitude, SignedCode::decode(static_cast<std::uint8_t>(c - 1)));
    }
  }
}

TEST(Codes, AreTheDynamicTreesFractions) {
  // Decade 0 of the unsigned map is codes 127 to 254: 128 equal parts of [0.1, 1], by their centres.
  EXPECT_FLOAT_EQ(UnsignedCode::decode(127), static_cast<float>(0.1 + 0.9 * 0.5 / 128));
  EXPECT_FLOAT_EQ(UnsignedCode::decode(254), static_cast<float>(0.1 + 0.9 * 127.5 / 128));
  EXPECT_FLOAT_EQ(UnsignedCode::decode(1), 0.325e-6f);
  EXPECT_FLOAT_EQ(UnsignedCode::decode(2), 0.775e-6f);
  EXPECT_FLOAT_EQ(SignedCode::decode(1), 0.55e-6f);
  EXPECT_FLOAT_EQ(SignedCode::decode(64), static_cast<float>(0.1 + 0.9 * 0.5 / 64));
  EXPECT_FLOAT_EQ(SignedCode::decode(126), static_cast<float>(0.1 + 0.9 * 62.5 / 64));
}

TEST(Codes, ReturnToThemselves) {
  for (int c = 0; c < 256; ++c) {
    const auto code = static_cast<std::uint8_t>(c);
    EXPECT_EQ(encode<UnsignedCode>(UnsignedCode::decode(code)), code);
    EXPECT_EQ(encode<SignedCode>(SignedCode::decode(code)), code == 128 ? 0 : code);
  }
}

TEST(Codes, AreTheNearest) {
  for (const float x : magnitudes()) {
    double best_unsigned = 1, best_signed = 1;
    for (int c = 1; c < 256; ++c) best_unsigned = std::min(best_unsigned, distance<UnsignedCode>(x, c));
    for (int c = 0; c < 128; ++c) best_signed = std::min(best_signed, distance<SignedCode>(x, c));
    // A threshold is rounded to float, so a number beside it may go either way.
    ASSERT_LE(distance<UnsignedCode>(x, encode<UnsignedCode>(x)), best_unsigned + 1e-7 * x) << x;
    ASSERT_LE(distance<SignedCode>(x, encode<SignedCode>(x)), best_signed + 1e-7 * x) << x;
    ASSERT_EQ(SignedCode::decode(encode<SignedCode>(-x)), -SignedCode::decode(encode<SignedCode>(x))) << x;
    ASSERT_GT(encode<UnsignedCode>(x), 0) << "a positive second moment vanished: " << x;
  }
}

TEST(Codes, ErrIsBoundedByTheirDecade) {
  for (const float x : magnitudes()) {
    if (x < 1e-6) continue;
    const int decade =
        std::clamp(static_cast<int>(std::floor(std::log10(static_cast<double>(x)) + 1e-9)) + 7, 1, 6);
    const double cell = 0.9 * std::pow(10, decade - 6) / std::pow(2, decade);
    // 0.75 of a cell only beside the signed map's 1, half a cell elsewhere.
    const double share = x > 0.97 ? 0.76 : 0.51;
    EXPECT_LE(distance<SignedCode>(x, encode<SignedCode>(x)), share * cell) << x;
    EXPECT_LE(distance<UnsignedCode>(x, encode<UnsignedCode>(x)), 0.51 * cell / 2) << x;
  }
}

TEST(Codes, OfWhatIsNotInTheirRangeAreTheLargest) {
  for (const float x : {1.5f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_EQ(encode<UnsignedCode>(x), 255);
    EXPECT_EQ(encode<SignedCode>(x), 127);
  }
  EXPECT_EQ(encode<SignedCode>(-1e-9f), 0);
}

OptimizerCase coded(DType parameter = DType::f32) {
  return {"adamw_8bit", {0.9, 0.95, 1e-8, 0, false}, {parameter, parameter, parameter, DType::f32}};
}

TEST(CodedAdamW, StartsFromZeroBytesAsAdamWDoes) {
  const TestExec exec;
  OptimizerCase plain = coded();
  plain.rule = "adamw";
  auto a = OptimizerArraysOf::start(coded(), 0, 700), b = OptimizerArraysOf::start(plain, 0, 700);
  a.draw_gradients(coded(), 0, 0);
  b.draw_gradients(plain, 0, 0);
  const StepScalars scalars = scalars_of(plain.settings, 0);
  make_step(coded(), a, {{0, 700, 1, 0.1}})->run(*exec, Shared(scalars).get());
  make_step(plain, b, {{0, 700, 1, 0.1}})->run(*exec, Shared(scalars).get());
  EXPECT_TRUE(a.parameter == b.parameter);
  // The scale is the block's largest moment, and each moment is nearest to its code.
  for (std::int64_t block = 0; block < 3; ++block) {
    float largest = 0, largest_square = 0;
    for (std::int64_t i = block * 256; i < std::min<std::int64_t>(700, (block + 1) * 256); ++i) {
      largest = std::max(largest, std::abs(get_as<float>(b.states[0], i)));
      largest_square = std::max(largest_square, get_as<float>(b.states[1], i));
    }
    EXPECT_EQ(get_as<float>(a.states[1], block), largest);
    EXPECT_EQ(get_as<float>(a.states[3], block), largest_square);
  }
  for (std::int64_t i = 0; i < 700; ++i) {
    const float m = get_as<float>(b.states[0], i) / get_as<float>(a.states[1], i / 256);
    const float v = get_as<float>(b.states[1], i) / get_as<float>(a.states[3], i / 256);
    EXPECT_EQ(get_as<std::uint8_t>(a.states[0], i), encode<SignedCode>(m));
    EXPECT_EQ(get_as<std::uint8_t>(a.states[2], i), encode<UnsignedCode>(v));
  }
}

TEST(CodedAdamW, ABlockOfZerosStaysZero) {
  const TestExec exec;
  auto a = OptimizerArraysOf::start(coded(), 0, 512);
  a.draw_gradients(coded(), 0, 0);
  std::fill(a.gradient.begin(), a.gradient.begin() + 256 * 4, std::byte{0});
  const auto before = a;
  const StepScalars scalars = scalars_of(coded().settings, 0);
  make_step(coded(), a, {{0, 512}})->run(*exec, Shared(scalars).get());
  for (std::size_t s = 0; s < 4; ++s) {
    const auto half = static_cast<std::ptrdiff_t>(a.states[s].size() / 2);
    EXPECT_TRUE(std::all_of(a.states[s].begin(), a.states[s].begin() + half,
                            [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_FALSE(std::all_of(a.states[s].begin() + half, a.states[s].end(),
                             [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_TRUE(std::equal(a.parameter.begin(), a.parameter.begin() + 1024, before.parameter.begin()));
}

/// Minimises sum of a_i (x_i - t_i)^2 / 2 with curvatures a_i over two decades, each x_i from 0; returns x -
/// t.
std::vector<double> minimise(const OptimizerCase& c, std::int64_t n, int steps) {
  const TestExec exec;
  auto arrays = OptimizerArraysOf::start(c, 0, n);
  std::vector<double> curvature, target, rest;
  for (std::int64_t i = 0; i < n; ++i) {
    curvature.push_back(0.1 * std::pow(100, static_cast<double>(i * 37 % n) / static_cast<double>(n)));
    target.push_back(normal(5, 1, static_cast<std::uint64_t>(i)));
    put(arrays.parameter, c.types.parameter, i, 0);
  }
  const auto step = make_step(c, arrays, {{0, n}});
  for (int t = 0; t < steps; ++t) {
    rest.clear();
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::size_t>(i);
      rest.push_back(get(arrays.parameter, c.types.parameter, i) - target[k]);
      put(arrays.gradient, c.types.gradient, i, curvature[k] * rest[k]);
    }
    StepScalars scalars = scalars_of(c.settings, t);
    scalars.gradient_multiplier = 1;
    scalars.learning_rate = 0.02 * (1 - static_cast<double>(t) / steps);
    step->run(*exec, Shared(scalars).get());
  }
  return rest;
}

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(CodedAdamW, FollowsAdamWOnAQuadratic) {
  OptimizerCase plain = coded();
  plain.rule = "adamw";
  for (const int steps : {30, 300}) {
    const auto a = minimise(coded(), 1000, steps), b = minimise(plain, 1000, steps);
    std::vector<double> apart;
    for (std::size_t i = 0; i < a.size(); ++i) apart.push_back(a[i] - b[i]);
    EXPECT_LT(root_mean_square(apart), 0.03) << steps;
    EXPECT_LT(root_mean_square(a), 1.15 * root_mean_square(b)) << steps;
    EXPECT_LT(root_mean_square(b), steps == 300 ? 0.04 : 0.8);
  }
  const auto in_f64 = minimise(coded(DType::f64), 1000, 30), in_f32 = minimise(coded(), 1000, 30);
  for (std::size_t i = 0; i < in_f64.size(); ++i) EXPECT_NEAR(in_f64[i], in_f32[i], 0.02);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_optimizer_codes_test
