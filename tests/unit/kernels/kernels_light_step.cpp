// Kernels of the optimizer step: sum of squares, the step's scalars.

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/elementwise/reference.hpp"
#include "kernels/step/reference.hpp"
#include "kernels/step/step_metrics.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_light_step_test {
namespace {

using namespace ztrain::test;

const std::vector<std::int64_t> sizes = {1, 3, 257, 1000};

template <class G>
struct SumSquares : ::testing::Test {
  TestExec exec;

  /// Added to start, or in place of garbage.
  ExactSum exact(Vector<const G> x, const ExactSum* start = nullptr) {
    Array<double> workspace(static_cast<std::size_t>(sum_squares_workspace_bytes(x.count) / 8));
    Shared<ExactSum> out(start ? *start : ExactSum{{-1, 3}, 1});
    sum_squares<G>(*exec, x, start != nullptr, out.get(), workspace.data());
    return *out;
  }
  double of(Vector<const G> x) { return exact(x).value(); }
};
TYPED_TEST_SUITE(SumSquares, FloatTypes);

TYPED_TEST(SumSquares, MatchesTheReference) {
  for (const std::int64_t n : sizes) {
    const auto x = random<TypeParam>(n, 1);
    const double expected = reference::sum_squares(doubles(x));
    EXPECT_NEAR(this->of(view(x)), expected, 1e-12 * expected);
    ExactSum three;
    three.add(3);
    EXPECT_NEAR(this->exact(view(x), &three).value(), expected + 3, 1e-12 * (expected + 3));
    EXPECT_EQ(this->exact({}, &three).value(), 3);
  }
  EXPECT_EQ(this->of({}), 0);
}

TYPED_TEST(SumSquares, PiecesGiveTheBitsOfTheWholeInAnyOrder) {
  const std::int64_t n = 256 * 40 + 77;
  const auto x = random<TypeParam>(n, 1);
  const ExactSum exact = this->exact(view(x));
  const double whole = exact.value();
  for (const std::int64_t piece : {256, 768, 256 * 17}) {
    ExactSum chained, apart;
    for (std::int64_t begin = 0; begin < n; begin += piece)
      chained = this->exact(slice(view(x), begin, std::min(n, begin + piece)), &chained);
    for (std::int64_t begin = (n - 1) / piece * piece; begin >= 0; begin -= piece)
      apart.add(this->exact(slice(view(x), begin, std::min(n, begin + piece))));
    apart.carry();
    EXPECT_EQ(std::memcmp(&chained, &exact, sizeof exact), 0) << piece;
    EXPECT_EQ(std::memcmp(&apart, &exact, sizeof exact), 0) << piece;
  }
  for (const std::size_t shift : {1, 3, 8}) {
    Array<TypeParam> moved(shift);
    moved.insert(moved.end(), x.begin(), x.end());
    EXPECT_EQ(this->of({moved.data() + shift, n}), whole) << "moved by " << shift;
  }
  auto padded = x;
  padded.resize(256 * 64, static_cast<TypeParam>(0.0f));
  EXPECT_EQ(this->of(view(std::as_const(padded))), whole) << "padding";
}

TYPED_TEST(SumSquares, TakesSeveralPassesThroughItsWorkspace) {
  const std::int64_t n = sum_squares_pass_quanta * 256 + 300;
  Array<TypeParam> x(static_cast<std::size_t>(n), static_cast<TypeParam>(0.5f));
  EXPECT_EQ(this->of(view(std::as_const(x))), 0.25 * static_cast<double>(n));
  x[static_cast<std::size_t>(n - 1)] = static_cast<TypeParam>(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(std::isfinite(this->of(view(std::as_const(x)))));
  x[static_cast<std::size_t>(n - 1)] = static_cast<TypeParam>(0.5f);
  x[5] = static_cast<TypeParam>(std::nanf(""));
  EXPECT_FALSE(std::isfinite(this->of(view(std::as_const(x)))));
}

TEST(StepMetrics, SumTermsAddsThemInOrder) {
  const TestExec exec;
  Array<double> values = random<double>(200, 1);
  std::vector<const double*> terms;
  double expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    terms.push_back(&values[i]);
    expected += values[i];
  }
  Shared<double> out(-1);
  sum_terms(*exec, terms, out.get());
  EXPECT_EQ(*out, expected);
  sum_terms(*exec, {}, out.get());
  EXPECT_EQ(*out, 0);
}

TEST(StepMetrics, SumExactAddsAllTerms) {
  const TestExec exec;
  const Array<double> values = random<double>(200, 1);
  Array<ExactSum> sums(values.size());
  std::vector<const ExactSum*> terms;
  ExactSum expected;
  Shared<ExactSum> out(ExactSum{{7}, 1});
  for (std::size_t i = 0; i < values.size(); ++i) {
    sums[i].add(values[i]);
    terms.push_back(&sums[i]);
    expected.add(values[i]);
  }
  sum_exact(*exec, terms, out.get());
  expected.carry();
  EXPECT_EQ(std::memcmp(&*out, &expected, sizeof expected), 0);
  sum_exact(*exec, {}, out.get());
  EXPECT_EQ(out->value(), 0);
}

Array<StepPartial> partials_of(const std::vector<std::array<double, 3>>& rows) {
  Array<StepPartial> partials;
  for (const auto& [loss, weight, squares] : rows) {
    partials.push_back({loss, weight, {}});
    partials.back().squares.add(squares);
  }
  return partials;
}

void expect_scalars(const std::vector<std::array<double, 3>>& partials, double max_norm,
                    double loss_scale = 1) {
  const TestExec exec;
  StepScalars given;
  given.max_norm = max_norm;
  given.loss_scale = loss_scale;
  given.learning_rate = 0.25;
  const Array<StepPartial> rows = partials_of(partials);
  const StepScalars expected = reference::finish_step(partials, given);
  Shared<StepScalars> written(given);
  finish_step(*exec, view(std::as_const(rows)), nullptr, written.get());
  const StepScalars& scalars = *written;
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
  expect_scalars(partials, 0, 1024);
  expect_scalars(partials, 1e-3, 3);
  expect_scalars({{0, 0, 0}}, 1);
}

TEST(StepMetrics, FinishStepFindsWhatIsNotFinite) {
  const TestExec exec;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const double tokens : {0.0, 10.0}) {
      const Array<StepPartial> partials = partials_of({{1, tokens, 1}, {1, 0, bad}});
      Shared<StepScalars> scalars;
      finish_step(*exec, view(partials), nullptr, scalars.get());
      EXPECT_EQ(scalars->found_inf, 1);
    }
  }
}

/// Whatever the norm is.
TEST(StepMetrics, FinishStepTellsOfRowsLeftOut) {
  const TestExec exec;
  for (const double squares : {1.0, std::nan("")})
    for (const double rows : {0.0, 3.0}) {
      const Array<StepPartial> partials = partials_of({{1, 10, squares}});
      const Array<double> overflows(1, rows);
      Shared<StepScalars> scalars;
      finish_step(*exec, view(partials), overflows.data(), scalars.get());
      EXPECT_EQ(scalars->found_inf, rows > 0 ? StepScalars::rows_left_out : std::isfinite(squares) ? 0 : 1);
    }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_light_step_test
