// Kernels of the optimizer step: sum of squares, the step's scalars.

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "base/kernel_workspace.hpp"
#include "kernels/backend.hpp"
#include "kernels/reference/adamw.hpp"
#include "kernels/reference/elementwise.hpp"
#include "kernels/step_metrics.hpp"
#include "kernels/sum_squares.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::kernels {
namespace {

using namespace ztrain::test;

const std::vector<std::int64_t> sizes = {1, 3, 257, 1000};

template <class G>
struct SumSquares : ::testing::Test {
  ExecHandle exec = make_exec();

  double of(Vector<const G> x, bool add = false, double start = -1) {
    std::vector<double> workspace(static_cast<std::size_t>(sum_squares_workspace_bytes(x.count) / 8));
    sum_squares<G>(*exec, x, add, &start, workspace.data());
    return start;
  }
};
TYPED_TEST_SUITE(SumSquares, FloatTypes);

TYPED_TEST(SumSquares, MatchesTheReference) {
  for (const std::int64_t n : sizes) {
    const auto x = random<TypeParam>(n, 1);
    const double expected = reference::sum_squares(doubles(x));
    EXPECT_NEAR(this->of(view(x)), expected, 1e-12 * expected);
    EXPECT_NEAR(this->of(view(x), true, 3), expected + 3, 1e-12 * (expected + 3));
  }
  EXPECT_EQ(this->of({}), 0);
  EXPECT_EQ(this->of({}, true, 3), 3);
}

TYPED_TEST(SumSquares, ChainedPiecesGiveTheBitsOfTheWhole) {
  const std::int64_t n = 256 * 40 + 77;
  const auto x = random<TypeParam>(n, 1);
  const double whole = this->of(view(x));
  for (const std::int64_t piece : {256, 768, 256 * 17}) {
    double sum = 0;
    for (std::int64_t begin = 0; begin < n; begin += piece) {
      sum = this->of(slice(view(x), begin, std::min(n, begin + piece)), begin > 0, sum);
    }
    EXPECT_EQ(sum, whole) << piece;
  }
  // Quanta are added left to right.
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += 256) {
    sum += this->of(slice(view(x), begin, std::min(n, begin + 256)));
  }
  EXPECT_EQ(sum, whole);
  for (const std::size_t shift : {1, 3, 8}) {
    std::vector<TypeParam> moved(shift);
    moved.insert(moved.end(), x.begin(), x.end());
    EXPECT_EQ(this->of({moved.data() + shift, n}), whole) << "moved by " << shift;
  }
  auto padded = x;
  padded.resize(256 * 64, static_cast<TypeParam>(0.0f));
  EXPECT_EQ(this->of(view(std::as_const(padded))), whole) << "padding";
}

TYPED_TEST(SumSquares, TakesSeveralPassesThroughItsWorkspace) {
  const std::int64_t n = sum_squares_pass_quanta * 256 + 300;
  std::vector<TypeParam> x(static_cast<std::size_t>(n), static_cast<TypeParam>(0.5f));
  EXPECT_EQ(this->of(view(std::as_const(x))), 0.25 * static_cast<double>(n));
  x[static_cast<std::size_t>(n - 1)] = static_cast<TypeParam>(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isinf(this->of(view(std::as_const(x)))));
  x[5] = static_cast<TypeParam>(std::nanf(""));
  EXPECT_TRUE(std::isnan(this->of(view(std::as_const(x)))));
}

TEST(StepMetrics, SumTermsAddsTheCountedOnesInOrder) {
  const ExecHandle exec = make_exec();
  std::vector<double> values = random<double>(200, 1);
  values[3] = std::nan("");
  std::vector<Term> terms;
  double expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool counted = i % 5 != 3;
    terms.push_back({&values[i], counted});
    if (counted) expected += values[i];
  }
  double out = -1;
  sum_terms(*exec, terms, &out);
  EXPECT_EQ(out, expected);
  sum_terms(*exec, std::span<const Term>(terms).subspan(3, 1), &out);
  EXPECT_EQ(out, 0);
  sum_in_order(*exec, {values.data() + 4, 3}, false, &out);
  EXPECT_EQ(out, values[4] + values[5] + values[6]);
  const double before = out;
  sum_in_order(*exec, {values.data() + 7, 1}, true, &out);
  EXPECT_EQ(out, before + values[7]);
}

void expect_scalars(const std::vector<std::array<double, 3>>& partials, double max_norm) {
  const ExecHandle exec = make_exec();
  StepScalars scalars;
  scalars.max_norm = max_norm;
  scalars.learning_rate = 0.25;
  const StepScalars expected = reference::finish_step(partials, scalars);
  finish_step(*exec, {partials.data()->data(), static_cast<std::int64_t>(partials.size()), 3}, &scalars);
  EXPECT_DOUBLE_EQ(scalars.loss, expected.loss);
  EXPECT_DOUBLE_EQ(scalars.valid_tokens, expected.valid_tokens);
  EXPECT_DOUBLE_EQ(scalars.gradient_norm, expected.gradient_norm);
  EXPECT_DOUBLE_EQ(scalars.gradient_multiplier, expected.gradient_multiplier);
  EXPECT_EQ(scalars.found_inf, expected.found_inf);
  EXPECT_EQ(scalars.learning_rate, 0.25);
  EXPECT_EQ(scalars.max_norm, max_norm);
}

TEST(StepMetrics, FinishStepMatchesTheReference) {
  const std::vector<std::array<double, 3>> partials = {{300.5, 100, 4e4}, {200.25, 60, 9e4}, {0, 0, 1e4}};
  expect_scalars(partials, 0);
  expect_scalars(partials, 1);
  expect_scalars(partials, 1e6);
  expect_scalars({{0, 0, 0}}, 1);
}

TEST(StepMetrics, FinishStepFindsWhatIsNotFinite) {
  const ExecHandle exec = make_exec();
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const double tokens : {0.0, 10.0}) {
      const std::vector<double> partials = {1, tokens, 1, 1, 0, bad};
      StepScalars scalars;
      finish_step(*exec, {partials.data(), 2, 3}, &scalars);
      EXPECT_EQ(scalars.found_inf, 1);
    }
  }
}

}  // namespace
}  // namespace ztrain::kernels
