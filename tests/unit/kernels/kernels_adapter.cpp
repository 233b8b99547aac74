// Kernels of low-rank adapters, scale and dropout, and the cap of logits.

#include <gtest/gtest.h>

#include "kernel_interface/step_scalars.hpp"
#include "kernels/dropout/dropout.hpp"
#include "kernels/dropout/reference.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_adapter_test {
namespace {

using namespace ztrain::test;

template <class T>
struct Adapter : ::testing::Test {
  TestExec exec;

  Array<T> dropped(const Array<T>& x, std::int64_t rows, const DropoutMask& mask, int step) {
    Array<T> y(x.size(), T(9.0f));
    StepScalars scalars;
    scalars.optimizer_step = step;
    dropout<T>(*exec, matrix(x, rows), mask, Shared(scalars).get(), matrix(y, rows));
    return y;
  }
};
TYPED_TEST_SUITE(Adapter, FloatTypes);

TYPED_TEST(Adapter, ScaleRoundsOnce) {
  using T = TypeParam;
  for (const std::int64_t count : {1, 255, 256, 1000}) {
    const auto x = random<T>(count, 3);
    Array<T> y(x.size()), in_place = x;
    scale<T>(*this->exec, view(x), 1.7, view(y));
    std::vector<double> expected = doubles(x);
    for (double& e : expected) e *= 1.7;
    expect_close(y, expected, std::is_same_v<T, double> ? 0 : 1e-6, "scale");
    scale<T>(*this->exec, view(std::as_const(in_place)), 1.7, view(in_place));
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TYPED_TEST(Adapter, SoftCapRoundsOnce) {
  using T = TypeParam;
  for (const std::int64_t count : {1, 255, 256, 1000}) {
    const auto x = random<T>(count, 3, 40);
    Array<T> y(x.size()), in_place = x;
    soft_cap<T>(*this->exec, view(x), 30, view(y));
    std::vector<double> expected = doubles(x);
    for (double& e : expected) e = 30 * std::tanh(e / 30);
    expect_close(y, expected, std::is_same_v<T, double> ? 1e-14 : 1e-5, "soft_cap");
    soft_cap<T>(*this->exec, view(std::as_const(in_place)), 30, view(in_place));
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TYPED_TEST(Adapter, DropoutIsTheReferences) {
  using T = TypeParam;
  for (const std::int64_t width : {1, 3, 4, 6, 257})
    for (const double rate : {0.0, 0.1, 0.5, 0.95}) {
      const std::int64_t rows = 37;
      const auto x = random<T>(rows * width, 5);
      const DropoutMask mask{rate, 0x9876543210abcdefu, 11};
      const auto y = this->dropped(x, rows, mask, 3);
      expect_close(y, reference::dropout(doubles(x), width, rate, mask.key, 11, 3),
                   std::is_same_v<T, double> ? 1e-13 : 2e-5, "dropout");
      if (rate == 0) {
        EXPECT_TRUE(same_bits(x, y));
      }
    }
}

TYPED_TEST(Adapter, TheMaskBelongsToTheColumn) {
  using T = TypeParam;
  for (const std::int64_t width : {7, 10, 301}) {
    const std::int64_t rows = 40;
    const auto x = random<T>(rows * width, 5);
    const auto whole = this->dropped(x, rows, {0.4, 7, 100}, 2);
    for (const std::int64_t cut : {std::int64_t{1}, std::int64_t{3}, width / 2})
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, width}}) {
        Array<T> part, expected;
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t column = begin; column < end; ++column) {
            part.push_back(x[static_cast<std::size_t>(row * width + column)]);
            expected.push_back(whole[static_cast<std::size_t>(row * width + column)]);
          }
        EXPECT_TRUE(same_bits(this->dropped(part, rows, {0.4, 7, 100, begin, width}, 2), expected))
            << width << " " << begin;
      }
  }
}

TYPED_TEST(Adapter, TheMaskBelongsToTheToken) {
  using T = TypeParam;
  const std::int64_t rows = 24, width = 10;
  const auto x = random<T>(rows * width, 5);
  const auto whole = this->dropped(x, rows, {0.4, 7, 100}, 2);
  for (const std::int64_t cut : {1, 5, 23}) {
    const auto at = static_cast<std::ptrdiff_t>(cut * width);
    const Array<T> first(x.begin(), x.begin() + at), second(x.begin() + at, x.end());
    auto parts = this->dropped(first, cut, {0.4, 7, 100}, 2);
    const auto rest = this->dropped(second, rows - cut, {0.4, 7, 100 + cut}, 2);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_TRUE(same_bits(parts, whole)) << cut;
  }
}

TYPED_TEST(Adapter, KeyAndStepGiveOtherMasksOfTheSameShare) {
  using T = TypeParam;
  const std::int64_t rows = 200, width = 50;
  const Array<T> ones(static_cast<std::size_t>(rows * width), T(1.0f));
  std::vector<Array<T>> masks;
  for (const auto& [key, step] : {std::pair{1, 0}, {2, 0}, {1, 1}}) {
    masks.push_back(this->dropped(ones, rows, {0.3, static_cast<std::uint64_t>(key), 0}, step));
    std::int64_t kept = 0;
    for (const T v : masks.back()) kept += static_cast<double>(v) != 0;
    EXPECT_NEAR(static_cast<double>(kept) / 10000, 0.7, 0.02);  // four deviations of a binomial
  }
  std::int64_t equal = 0;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const double a = static_cast<double>(masks[0][i]), b = static_cast<double>(masks[1][i]);
    equal += a == b && static_cast<double>(masks[2][i]) == a;
  }
  EXPECT_NEAR(static_cast<double>(equal) / 10000, 0.7 * 0.7 * 0.7 + 0.3 * 0.3 * 0.3, 0.02);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_adapter_test
