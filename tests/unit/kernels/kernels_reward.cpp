// Values of tokens, and their gradients, against the float64 reference.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reward/reference.hpp"
#include "kernels/reward/reward_tokens.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_reward_test {
namespace {

using namespace ztrain::test;

constexpr double loss_scale = 4;

/// Most tokens have no weight, as in training.
Array<float> weights_of(std::int64_t tokens) {
  Array<float> weights(static_cast<std::size_t>(tokens));
  for (std::size_t t = 0; t < weights.size(); ++t)
    weights[t] = t % 3 == 1 ? 0.5F + static_cast<float>(t % 4) : 0;
  return weights;
}

template <class Types>
class RewardKernels : public testing::Test {};
TYPED_TEST_SUITE(RewardKernels, GradientPairs);

TYPED_TEST(RewardKernels, AgreeWithTheReference) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const TestExec exec;
  Array<StepScalars> scalars(1);
  scalars[0].loss_scale = loss_scale;
  for (const auto& [tokens, width] : {std::pair(1, 3), std::pair(7, 40), std::pair(23, 300)}) {
    SCOPED_TRACE(width);
    const Array<T> h = random<T>(tokens * width, 1), weight = random<T>(width, 2);
    const Array<float> token_weights = weights_of(tokens);
    const Array<double> dnll = random<double>(tokens, 3);
    const reference::RewardHead head{doubles(h), doubles(weight), doubles(token_weights)};
    const RewardInput<T> input{matrix(h, tokens), view(weight), view(token_weights), 0};
    Array<double> nll(static_cast<std::size_t>(tokens), 7);
    reward_tokens<T>(*exec, input, view(nll));
    const reference::Values expected = reference::reward_tokens(head);
    for (std::size_t t = 0; t < expected.size(); ++t)
      EXPECT_NEAR(nll[t], expected[t], 1e-12 * (1 + std::abs(expected[t]))) << t;

    const Array<G> before = random<G>(width, 4);
    Array<T> dh(h.size(), static_cast<T>(7.0F));
    Array<G> dweight = before, fresh = before;
    reward_tokens_backward<T, G>(*exec, input, view(dnll), scalars.data(), matrix(dh, tokens), view(dweight),
                                 true);
    reward_tokens_backward<T, G>(*exec, input, view(dnll), scalars.data(), matrix(dh, tokens), view(fresh),
                                 false);
    const reference::RewardGradients d = reference::reward_tokens_backward(head, doubles(dnll));
    const auto expect_near = [&](double found, double wanted, bool narrow, std::size_t i) {
      const double rounding = narrow ? 1.0 / 128 : sizeof(T) == 8 ? 1e-12 : 1e-6;
      EXPECT_NEAR(found, wanted, rounding * (1 + std::abs(wanted))) << i;
    };
    for (std::size_t i = 0; i < d.dh.size(); ++i)
      expect_near(static_cast<double>(dh[i]), loss_scale * d.dh[i], sizeof(T) == 2, i);
    for (std::size_t i = 0; i < d.dweight.size(); ++i) {
      const double own = loss_scale * d.dweight[i];
      expect_near(static_cast<double>(fresh[i]), own, sizeof(G) == 2, i);
      expect_near(static_cast<double>(dweight[i]), own + static_cast<double>(before[i]), sizeof(G) == 2, i);
    }
  }
}

/// A part of the tokens gives the bits that it has in the whole, and zeros for the other tokens.
TEST(RewardTokens, OfAPartAreThoseOfTheWhole) {
  const TestExec exec;
  constexpr std::int64_t tokens = 10, width = 33, first = 4, rows = 5;
  const Array<float> h = random<float>(tokens * width, 1), weight = random<float>(width, 2);
  const Array<float> token_weights = weights_of(tokens);
  Array<double> whole(tokens), part(tokens, 7);
  reward_tokens<float>(*exec, {matrix(h, tokens), view(weight), view(token_weights), 0}, view(whole));
  reward_tokens<float>(
      *exec, {{h.data() + first * width, rows, width}, view(weight), view(token_weights), first}, view(part));
  for (std::size_t t = 0; t < whole.size(); ++t)
    EXPECT_EQ(part[t], t >= first && t < first + rows ? whole[t] : 0) << t;
}

/// Tokens without a weight are not looked at: padding may hold anything.
TEST(RewardTokens, LookAtTokensWithAWeightAlone) {
  const TestExec exec;
  Array<float> h{1, 2, std::numeric_limits<float>::quiet_NaN(), 4}, dh(4);
  const Array<float> weight{3, 5}, token_weights{1, 0};
  Array<double> nll(2, 7);
  const RewardInput<float> input{matrix(std::as_const(h), 2), view(weight), view(token_weights), 0};
  reward_tokens<float>(*exec, input, view(nll));
  EXPECT_EQ(doubles(nll), (std::vector<double>{-13, 0}));
  Array<StepScalars> scalars(1);
  const Array<double> dnll{-1, -1};
  reward_tokens_backward<float, float>(*exec, input, view(dnll), scalars.data(), matrix(dh, 2), {}, false);
  EXPECT_EQ(doubles(dh), (std::vector<double>{3, 5, 0, 0}));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_reward_test
