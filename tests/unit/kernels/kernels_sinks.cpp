// Attention with sinks against float64, and its gradients against finite differences.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/sinks/reference.hpp"
#include "kernels/sinks/sinks.hpp"
#include "tests/support/attention_case.hpp"

namespace ztrain::kernels::kernels_sinks_test {
namespace {

using namespace ztrain::test;

constexpr AttentionShape shapes[] = {{1, 1, 1, 8}, {70, 6, 2, 20}, {131, 5, 1, 64}, {33, 2, 2, 7}};

/// One that has no part in the softmax, one that has nearly all of it, and others.
template <class T>
Array<T> sinks_of(std::int64_t heads) {
  auto sinks = random<T>(heads, 9, 2);
  if (heads > 2) sinks[0] = static_cast<T>(-200.0f), sinks[1] = static_cast<T>(90.0f);
  return sinks;
}

template <class T>
struct SinksOfHeads : ::testing::Test {};
TYPED_TEST_SUITE(SinksOfHeads, FloatTypes);

TYPED_TEST(SinksOfHeads, JoinTheSoftmax) {
  using T = TypeParam;
  using A = acc_t<T>;
  const TestExec exec;
  for (AttentionShape s : shapes)
    for (const std::int64_t window : {0, 3}) {
      SCOPED_TRACE(::testing::Message() << s.tokens << " tokens, " << s.heads << " heads, window " << window);
      s.window = window;
      const AttentionCase<T> c(s, {s.tokens / 3});
      const auto sinks = sinks_of<T>(s.heads + 3);  // of which the first 3 are of other heads
      const std::vector<double> own(sinks.begin() + 3, sinks.end());
      const auto plain = reference::attention(c.input64());
      auto expected = reference::attention_with_sinks(c.input64(), own);
      Array<T> o;
      for (const double x : plain.o) o.push_back(static_cast<T>(static_cast<A>(x)));
      // What o lost when it was rounded to T is not the kernel's error.
      for (std::size_t i = 0; i < o.size(); ++i)
        if (plain.o[i] != 0) expected.o[i] *= static_cast<double>(o[i]) / plain.o[i];
      Array<A> lse;
      for (const double x : plain.lse) lse.push_back(static_cast<A>(x));
      add_sinks<T>(*exec, {view(sinks), 3}, matrix(o, s.tokens), matrix(lse, s.tokens));
      expect_close(o, expected.o, 1e2 * rounding<A>, "o");
      expect_close(lse, expected.lse, 1e2 * rounding<A>, "lse");
    }
}

/// Attention with sinks, and the gradients of the sum of o * dout, in double.
struct Whole {
  const AttentionCase<double>& c;
  Array<double> sinks;
  AttentionRun<double> run;
  Array<double> dsinks;

  Whole(const AttentionCase<double>& attention, Array<double> of_heads)
      : c(attention), sinks(std::move(of_heads)), run(c), dsinks(sinks.size()) {
    const TestExec exec;
    const AttentionShape& s = c.shape;
    const std::int64_t bytes = sinks_backward_workspace_bytes(s.tokens, s.heads);
    Array<std::byte> workspace(static_cast<std::size_t>(
        attention_backward_workspace_bytes(s.tokens, s.heads, s.head_dim, DType::f64)));
    Array<std::byte> of_sinks(static_cast<std::size_t>(bytes));
    const auto o = matrix(run.o, s.tokens), lse = matrix(run.lse, s.tokens);
    const auto dout = matrix(c.dout, s.tokens);
    attention_forward<double>(*exec, c.input(), o, lse);
    add_sinks<double>(*exec, {view(std::as_const(sinks))}, o, lse);
    attention_backward<double>(*exec, c.input(), o, lse, dout, matrix(run.dq, s.tokens),
                               matrix(run.dk, s.tokens), matrix(run.dv, s.tokens), view(workspace));
    sinks_backward<double, double>(*exec, {view(std::as_const(sinks))}, o, lse, dout, view(dsinks), false,
                                   of_sinks.data());
  }
};

/// d f / d x, of the fourth order.
double slope(double& x, const std::function<double()>& f) {
  const double at = x, h = 1e-3;
  const auto moved = [&](double by) {
    x = at + by;
    const double value = f();
    x = at;
    return value;
  };
  return (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
}

TEST(SinksInAttention, GradientsAreFiniteDifferences) {
  for (const std::int64_t window : {0, 3}) {
    AttentionShape s{9, 4, 2, 5};
    s.window = window;
    AttentionCase<double> c(s, {4});
    const Whole whole(c, random<double>(4, 9));
    std::vector<double> sinks = doubles(whole.sinks);
    const auto f = [&] {
      const auto o = reference::attention_with_sinks(c.input64(), sinks).o;
      double sum = 0;
      for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * c.dout[i];
      return sum;
    };
    const auto check = [&](std::vector<double>& of, const Array<double>& gradient, const char* what) {
      for (std::size_t i = 0; i < of.size(); ++i)
        EXPECT_NEAR(gradient[i], slope(of[i], f), 1e-9) << what << " " << i << ", window " << window;
    };
    check(c.q64, whole.run.dq, "q");
    check(c.k64, whole.run.dk, "k");
    check(c.v64, whole.run.dv, "v");
    check(sinks, whole.dsinks, "sink");
  }
}

template <class P>
struct SinksGradient : ::testing::Test {};
TYPED_TEST_SUITE(SinksGradient, GradientPairs);

TYPED_TEST(SinksGradient, IsTheSumOverTokens) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const TestExec exec;
  for (const AttentionShape& s : shapes) {
    const AttentionCase<T> c(s, {});
    const auto sinks = sinks_of<T>(s.heads + 2);
    const auto lse = random<acc_t<T>>(s.tokens * s.heads, 5, 3);
    Array<acc_t<T>> at_least(lse);  // as the sink's part in lse makes it
    std::vector<double> expected(sinks.size()), size(sinks.size());
    for (std::int64_t row = 0; row < s.tokens * s.heads; ++row) {
      const auto head = static_cast<std::size_t>(1 + row % s.heads);
      auto& own = at_least[static_cast<std::size_t>(row)];
      own = std::max(own, static_cast<acc_t<T>>(sinks[head]));
      double product = 0;
      for (std::int64_t d = row * s.head_dim; d < (row + 1) * s.head_dim; ++d) {
        const auto i = static_cast<std::size_t>(d);
        product += static_cast<double>(c.q[i]) * static_cast<double>(c.dout[i]);
      }
      const double part = std::exp(static_cast<double>(sinks[head]) - static_cast<double>(own));
      expected[head] -= part * product;
      size[head] += part * std::abs(product);
    }
    const Array<G> before(sinks.size(), static_cast<G>(2.0f));
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << s.tokens << " tokens, " << s.heads << " heads, adds " << accumulate);
      Array<G> dsinks = before;
      Array<std::byte> workspace(static_cast<std::size_t>(sinks_backward_workspace_bytes(s.tokens, s.heads)));
      sinks_backward<T, G>(*exec, {view(sinks), 1}, matrix(c.q, s.tokens),
                           matrix(std::as_const(at_least), s.tokens), matrix(c.dout, s.tokens), view(dsinks),
                           accumulate, workspace.data());
      settle();
      for (std::size_t i = 0; i < sinks.size(); ++i) {
        const double wanted = expected[i] + (accumulate ? 2 : 0);
        EXPECT_NEAR(static_cast<double>(dsinks[i]), wanted,
                    1.01 * rounding<G> * std::abs(wanted) + 64 * rounding<acc_t<T>> * (1 + size[i]));
      }
    }
  }
}

TEST(SinksOfOtherHeads, AreRefused) {
  const TestExec exec;
  const Array<float> sinks(3);
  Array<float> o(8), lse(4), dsinks(3);
  EXPECT_THROW(add_sinks<float>(*exec, {view(sinks), 2}, matrix(o, 2), matrix(lse, 2)), Error);
  EXPECT_THROW((sinks_backward<float, float>(*exec, {view(sinks), 2}, matrix(std::as_const(o), 2),
                                             matrix(std::as_const(lse), 2), matrix(std::as_const(o), 2),
                                             view(dsinks), false, nullptr)),
               Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_sinks_test
