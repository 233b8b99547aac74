// Activations of feed-forwards against float64.

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/reference.hpp"
#include "kernels/activation/xielu.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"
#include "tests/support/xielu_case.hpp"

namespace ztrain::kernels::kernels_activation_test {
namespace {

using namespace ztrain::test;

constexpr const char* names[] = {"silu", "clamped_silu", "gelu_tanh"};

template <class T>
struct Activations : ::testing::Test {
  TestExec exec;
};
TYPED_TEST_SUITE(Activations, FloatTypes);

TYPED_TEST(Activations, MatchTheReference) {
  using T = TypeParam;
  for (const char* name : names)
    for (const std::int64_t n : {1, 3, 257, 1000, 70000}) {
      SCOPED_TRACE(testing::Message() << name << " " << n);
      const ActivationKind kind = activation_kind(name);
      auto gate = random<T>(n, 1, 6), up = random<T>(n, 2);
      const auto dy = random<T>(n, 3);
      gate[0] = static_cast<T>(-200.0f);  // exp overflows a float, silu is 0
      for (std::int64_t i = 0; i < n; i += 5)
        up[at(i)] = static_cast<T>(8 * static_cast<acc_t<T>>(up[at(i)]));  // some are cut
      Array<T> y(gate.size()), dgate(gate.size()), dup(gate.size()), plain(gate.size()), dx(gate.size());
      const auto in = [](const Array<T>& values) { return matrix(values, 1); };
      gated_forward<T>(*this->exec, kind, in(gate), in(up), matrix(y, 1));
      gated_backward<T>(*this->exec, kind, in(gate), in(up), in(dy), matrix(dgate, 1), matrix(dup, 1));
      activation_forward<T>(*this->exec, kind, view(std::as_const(gate)), view(plain));
      activation_backward<T>(*this->exec, kind, view(std::as_const(gate)), view(dy), view(dx));
      const bool adds_one = kind == ActivationKind::clamped_silu;
      const std::vector<double> neutral(gate.size(), adds_one ? 0 : 1);
      const auto expected = reference::gated_backward(name, doubles(gate), doubles(up), doubles(dy)),
                 alone = reference::gated_backward(name, doubles(gate), neutral, doubles(dy));
      const double error = 1e3 * acc_rounding<T>;
      expect_close(y, reference::gated_forward(name, doubles(gate), doubles(up)), error, "y");
      expect_close(dgate, expected.dgate, error, "dgate");
      expect_close(dup, expected.dup, error, "dup");
      expect_close(plain, reference::gated_forward(name, doubles(gate), neutral), error, "plain y");
      expect_close(dx, alone.dgate, error, "dx");
      activation_backward<T>(*this->exec, kind, view(std::as_const(gate)), view(dy), view(plain));
      EXPECT_TRUE(same_bits(dx, plain));
      gated_backward<T>(*this->exec, kind, in(gate), in(up), in(dy), matrix(gate, 1), matrix(up, 1));
      EXPECT_TRUE(same_bits(dgate, gate) && same_bits(dup, up)) << "in place";
    }
}

/// Numbers of every size that T has, of both signs.
template <class T>
Array<T> of_all_sizes() {
  const double most = std::is_same_v<T, f16> ? 65504 : std::is_same_v<T, double> ? 1e150 : 1e38;
  Array<T> values;
  for (double size = 1e-6; size < 20; size *= 1.003)
    for (const double sign : {-1.0, 1.0}) values.push_back(static_cast<T>(sign * size));
  for (double size = 20; size <= most; size *= size < 200 ? 1.02 : 100)
    for (const double sign : {-1.0, 1.0}) values.push_back(static_cast<T>(sign * size));
  return values;
}

TYPED_TEST(Activations, AreRightInTheLastDigitsForNumbersOfEverySize) {
  using T = TypeParam;
  const auto x = of_all_sizes<T>();
  const Array<T> ones(x.size(), static_cast<T>(1.0f));
  Array<T> y(x.size()), slope(x.size());
  for (const char* name : names) {
    activation_forward<T>(*this->exec, activation_kind(name), view(x), view(y));
    activation_backward<T>(*this->exec, activation_kind(name), view(x), view(ones), view(slope));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<double>(x[i]);
      const reference::Activated f = reference::activated(name, at);
      // Far below 0 the exponential's argument is large, and its rounding with it. f16's least steps are
      // 6e-8.
      const double digits = 1.01 * rounding<T> + (at > -4 ? 32 : 1e4) * acc_rounding<T>;
      // In fp32 exp ends at exp(88), whose reciprocal is 6e-39; GELU's bend is at most 88 times the value.
      const double least = std::is_same_v<T, f16> ? 3.1e-8 : 1e-34 + 88 * 6.1e-39 * std::abs(at);
      ASSERT_LE(std::abs(static_cast<double>(y[i]) - f.value), digits * std::abs(f.value) + least)
          << name << "(" << at << ") is " << static_cast<double>(y[i]) << ", expected " << f.value;
      ASSERT_LE(std::abs(static_cast<double>(slope[i]) - f.slope),
                digits * std::max(std::abs(f.slope), at > -4 ? 0.1 : 0.0) + least)
          << "slope of " << name << "(" << at << ") is " << static_cast<double>(slope[i]) << ", expected "
          << f.slope;
    }
  }
}

TYPED_TEST(Activations, ShowNaNWhereTheirInputHasIt) {
  using T = TypeParam;
  auto x = random<T>(80, 1);
  x[43] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  const Array<T> ones(x.size(), static_cast<T>(1.0f)), parameters(2, static_cast<T>(0.5f));
  Array<T> y(x.size()), dx(x.size());
  Array<acc_t<T>> sums(2);
  Array<char> workspace(static_cast<std::size_t>(xielu_backward_workspace_bytes(1)));
  const auto check = [&](const char* name) {
    settle();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(static_cast<double>(y[i])), i == 43) << name << " " << i;
      EXPECT_EQ(std::isnan(static_cast<double>(dx[i])), i == 43) << name << " " << i;
    }
  };
  for (const char* name : names) {
    activation_forward<T>(*this->exec, activation_kind(name), view(std::as_const(x)), view(y));
    activation_backward<T>(*this->exec, activation_kind(name), view(std::as_const(x)), view(ones), view(dx));
    check(name);
  }
  const XieluConstants<T> c{&parameters[0], &parameters[1], 0.5, -1e-6};
  xielu_forward<T>(*this->exec, c, matrix(std::as_const(x), 1), matrix(y, 1));
  xielu_backward<T, acc_t<T>>(*this->exec, c, matrix(std::as_const(x), 1), matrix(ones, 1), matrix(dx, 1),
                              &sums[0], &sums[1], false, workspace.data());
  check("xielu");
}

TEST(Activation, ThatHasNoRowIsRefused) {
  EXPECT_THROW(activation_kind("relu"), Error);
}

template <class P>
struct Xielu : ::testing::Test {
  TestExec exec;
};
TYPED_TEST_SUITE(Xielu, GradientPairs);

TYPED_TEST(Xielu, MatchesTheReference) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for_xielu_cases<T, G>([&](const XieluCase<T, G>& c) {
    Array<T> y(c.x.size()), dx(c.x.size()), in_place = c.dy;
    Array<G> sums{static_cast<G>(2.0f), static_cast<G>(-3.0f)},
        fresh(2, static_cast<G>(std::numeric_limits<float>::quiet_NaN()));
    Array<char> workspace(static_cast<std::size_t>(xielu_backward_workspace_bytes(c.rows)), '\xff');
    const auto x = matrix(c.x, c.rows), dy = matrix(c.dy, c.rows);
    xielu_forward<T>(*this->exec, c.views(), x, matrix(y, c.rows));
    expect_close(y, c.y, 1e2 * acc_rounding<T>, "y");
    xielu_backward<T, G>(*this->exec, c.views(), x, dy, matrix(dx, c.rows), &sums[0], &sums[1], true,
                         workspace.data());
    c.check(dx, sums, 2, -3);
    xielu_backward<T, G>(*this->exec, c.views(), x, matrix(std::as_const(in_place), c.rows),
                         matrix(in_place, c.rows), &fresh[0], &fresh[1], false, workspace.data());
    c.check(in_place, fresh, 0, 0);
    EXPECT_TRUE(same_bits(dx, in_place));
  });
}

TEST(ActivationReference, IsTheFormulaAndItsSlope) {
  const double h = 1e-6, root = std::sqrt(2 / std::acos(-1.0));
  for (const double x : {-5.0, -1.3, -0.3, 0.0, 0.2, 3.0, 30.0}) {
    EXPECT_NEAR(reference::activated("gelu_tanh", x).value,
                x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x))), 1e-14);
    for (const char* name : names)
      EXPECT_NEAR(
          reference::activated(name, x).slope,
          (reference::activated(name, x + h).value - reference::activated(name, x - h).value) / (2 * h),
          1e-8);
  }
}

TEST(XieluReference, HasTheSlopesOfItsValues) {
  const double h = 1e-6;
  for (const double eps : {-1e-6, -0.25})
    for (const double x : {-20.0, -1.3, -0.3, -0.1, 0.2, 3.0}) {
      const auto at = [&](double moved, double p, double n) {
        return reference::xielu(x + moved, {0.25 + p, -0.75 + n, 0.5, eps});
      };
      const reference::XieluSlopes slopes = reference::xielu_slopes(x, {0.25, -0.75, 0.5, eps});
      EXPECT_NEAR(slopes.x, (at(h, 0, 0) - at(-h, 0, 0)) / (2 * h), 1e-7);
      EXPECT_NEAR(slopes.p, (at(0, h, 0) - at(0, -h, 0)) / (2 * h), 1e-7);
      EXPECT_NEAR(slopes.n, (at(0, 0, h) - at(0, 0, -h)) / (2 * h), 1e-7);
    }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_activation_test
