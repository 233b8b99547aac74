// An optimizer's numbers do not depend on how its arrays are cut, and stochastic rounding is what it says.

#include <gtest/gtest.h>

#include <array>

#include "tests/support/optimizer_job.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_optimizer_slices_test {
namespace {

using namespace ztrain::test;

constexpr std::int64_t count = 9 * 256 + 101;

class OptimizerSlices : public ::testing::TestWithParam<OptimizerCase> {
 protected:
  /// Three steps of elements [begin, end) of one parameter.
  OptimizerArraysOf stepped(std::int64_t begin, std::int64_t end) {
    const OptimizerCase& c = GetParam();
    auto arrays = OptimizerArraysOf::start(c, begin, end - begin);
    OptimizerPiece piece{0, end - begin, 0.5, 0.1, 0xfedcba9876543210u, begin};
    const auto step = make_step(c, arrays, {piece});
    for (int t = 0; t < 3; ++t) {
      arrays.draw_gradients(c, begin, t);
      const StepScalars scalars = scalars_of(c.settings, t);
      step->run(*exec, Shared(scalars).get());
    }
    return arrays;
  }

  TestExec exec;
};

TEST_P(OptimizerSlices, GiveTheBitsOfTheWhole) {
  const auto whole = stepped(0, count);
  auto joined = stepped(0, 256);
  joined.append(stepped(256, 1024));
  joined.append(stepped(1024, count));
  EXPECT_TRUE(whole == joined);
  EXPECT_TRUE(whole == stepped(0, count));
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerSlices, ::testing::ValuesIn(optimizer_cases()));

/// SGD on bf16 parameters without a master, all equal to `from`, moved to a value that bf16 has not.
struct Rounder {
  explicit Rounder(std::int64_t n, float from, float to)
      : arrays(OptimizerArraysOf::start(the_case(), 0, n)) {
    for (std::int64_t i = 0; i < n; ++i) {
      put(arrays.parameter, DType::bf16, i, from);
      put_as(arrays.gradient, i, from - to);
    }
  }

  static OptimizerCase the_case() {
    return {"sgd", {}, {DType::bf16, DType::bf16, DType::f32, DType::f32}, true};
  }

  std::vector<float> run(const OptimizerPiece& piece, std::int64_t step, std::uint64_t seed = 3) {
    auto a = arrays;
    StepScalars scalars;
    scalars.learning_rate = 1;
    scalars.gradient_multiplier = 1;
    scalars.optimizer_step = static_cast<double>(step);
    make_step(the_case(), a, {piece}, seed)->run(*exec, Shared(scalars).get());
    std::vector<float> values;
    for (std::int64_t i = 0; i < piece.count; ++i) values.push_back(get_as<bf16>(a.parameter, i));
    return values;
  }

  TestExec exec;
  OptimizerArraysOf arrays;
};

TEST(StochasticRounding, HasTheRightMean) {
  const std::int64_t n = 1 << 16;
  const float below = 1, above = 1 + 0x1p-7f;
  for (const float part : {0.3f, 0.0625f, 0.9f}) {
    const float to = below + part * (above - below);
    Rounder rounder(n, below, to);
    std::int64_t up = 0;
    for (int step = 0; step < 4; ++step)
      for (const float value : rounder.run({0, n, 1, 0, 7}, step)) {
        ASSERT_TRUE(value == below || value == above) << value;
        up += value == above;
      }
    const double p = (static_cast<double>(to) - below) / (above - below), draws = 4.0 * n;
    EXPECT_NEAR(static_cast<double>(up), p * draws, 4 * std::sqrt(p * (1 - p) * draws)) << part;
  }
}

TEST(StochasticRounding, KeepsExactValuesAndSigns) {
  const std::int64_t n = 4096;
  for (const float value : {1.0f, -1.0f, 0.0f, 3.0f * 0x1p-9f, -0x1.fep20f}) {
    Rounder rounder(n, value, value);
    for (const float result : rounder.run({0, n, 1, 0, 7}, 5)) ASSERT_EQ(result, value);
  }
  Rounder negative(n, -1, -1 - 0x1p-8f);
  double sum = 0;
  for (const float value : negative.run({0, n, 1, 0, 7}, 0)) sum += value;
  EXPECT_NEAR(sum / n, -1 - 0x1p-8, 4 * 0x1p-8 / std::sqrt(n));
}

TEST(StochasticRounding, ConvertsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  Rounder rounder(300, 1, infinity);
  for (const float value : rounder.run({0, 300, 1, 0, 7}, 0)) EXPECT_EQ(value, infinity);
  Rounder nan(300, 1, std::nanf(""));
  for (const float value : nan.run({0, 300, 1, 0, 7}, 0)) EXPECT_TRUE(std::isnan(value));
}

/// The documented draw: sixteen bits of Philox by (seed, stream, step) and logical index.
std::uint32_t expected_bits(std::uint64_t seed, std::uint64_t stream, std::int64_t step,
                            std::int64_t logical) {
  const PhiloxBlock k = philox(seed, stream, (std::uint64_t{1} << 63) + static_cast<std::uint64_t>(step));
  const std::int64_t group = logical / 256, in_group = logical % 256, lane = in_group % 32,
                     half = in_group / 32;
  const PhiloxBlock b = philox(k[0] + (std::uint64_t{k[1]} << 32), k[2] + (std::uint64_t{k[3]} << 32),
                               static_cast<std::uint64_t>(32 * group + lane));
  return b[static_cast<std::size_t>(half / 2)] >> (16 * (half % 2)) & 0xffff;
}

TEST(StochasticRounding, DrawsByLogicalIndexWhateverTheSlice) {
  const float to = 1 + 0.4f * 0x1p-7f;
  const std::uint32_t fraction = std::bit_cast<std::uint32_t>(to) & 0xffff;
  const std::int64_t n = 1000;
  Rounder rounder(n, 1, to);
  // Whole; a shard's slice; a slice by columns (48 of 96 from the second half); one with an odd start.
  const std::vector<OptimizerPiece> pieces = {{0, n, 1, 0, 7},
                                              {0, n, 1, 0, 7, 1 << 20},
                                              {0, n, 1, 0, 7, 256, 48, 96, 48},
                                              {0, n, 1, 0, 7, 512, 1, 3, 2},
                                              {0, n, 1, 0, 7, 256, 5, 5, 77}};
  for (const OptimizerPiece& piece : pieces) {
    const auto values = rounder.run(piece, 9, 42);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t e = piece.slice_begin + i;
      const std::int64_t logical = e / piece.run * piece.stride + piece.offset + e % piece.run;
      const bool up = fraction + expected_bits(42, 7, 9, logical) >= 0x10000;
      ASSERT_EQ(values[static_cast<std::size_t>(i)], up ? 1 + 0x1p-7f : 1.0f) << i << " of run " << piece.run;
    }
  }
}

TEST(StochasticRounding, DrawsAnewForEachSeedNameAndStep) {
  const std::int64_t n = 1 << 14;
  Rounder rounder(n, 1, 1 + 0.5f * 0x1p-7f);
  const auto first = rounder.run({0, n, 1, 0, 7}, 0, 3);
  EXPECT_EQ(first, rounder.run({0, n, 1, 0, 7}, 0, 3));
  for (const auto& other : {rounder.run({0, n, 1, 0, 7}, 1, 3), rounder.run({0, n, 1, 0, 8}, 0, 3),
                            rounder.run({0, n, 1, 0, 7}, 0, 4), rounder.run({0, n, 1, 0, 7, 256}, 0, 3)}) {
    std::int64_t same = 0;
    for (std::size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    EXPECT_NEAR(static_cast<double>(same), 0.5 * n, 2.0 * std::sqrt(n));  // four standard deviations
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_optimizer_slices_test
