// The fused head and cross-entropy against its serial float64 reference, and the reference against finite
// differences.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "kernels/head/head_loss.hpp"
#include "tests/support/head_loss_case.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_head_loss_test {
namespace {

using namespace ztrain::test;

template <class T, class G>
struct Run {
  Array<double> loss = Array<double>(2, -1);
  Array<T> grad_h;
  Array<G> grad_weight;
};

template <class T, class G>
Run<T, G> run(const HeadLossCase<T>& c, bool accumulate, double loss_scale = 1) {
  const TestExec exec;
  Shared<StepScalars> scalars;
  scalars->loss_scale = loss_scale;
  Run<T, G> r;
  r.grad_h.assign(c.h.size(), T(7));
  r.grad_weight.assign(c.weight.size(), G(0.25f));
  auto workspace = c.workspace();
  HeadLossGrad<T, G>(*exec, c.shape, accumulate ? WeightGradient::add : WeightGradient::write)
      .run(*exec, c.input(), scalars.get(), view(r.loss), matrix(r.grad_h, c.shape.tokens),
           matrix(r.grad_weight, c.shape.vocabulary), view(workspace));
  return r;
}

/// 440 x 20000 and 290 x 33000 need several chunks in every type on CPUs, the last one shorter, and 4500 x
/// 2000 on GPUs. A cap of 1 bends most logits.
std::vector<HeadLossShape> shapes() {
  std::vector<HeadLossShape> all = {{33, 20000, 64}, {1, 257, 8},      {3, 1000, 20},
                                    {65, 257, 64},   {130, 1000, 33},  {440, 20000, 8},
                                    {290, 33000, 4}, {65, 257, 64, 1}, {440, 20000, 8, 1}};
  all.push_back({65, 257, 64, 0, {0.1, 0.01}});
  all.push_back({440, 20000, 8, 1, {0.2, 1e-3}});
  if (test_gpu() > 0) all.push_back({4500, 2000, 4});
  return all;
}

TEST(HeadLossOfTokens, AddsUpToTheLoss) {
  const TestExec exec;
  for (const HeadLossShape& s : shapes()) {
    const HeadLossCase<float> c(s);
    HeadLoss<float> head(*exec, s);
    Array<double> loss(2), nll(static_cast<std::size_t>(s.tokens), 7);
    auto workspace = c.workspace();
    head.run(*exec, c.input(), view(loss), view(workspace));
    head.run_tokens(*exec, c.input(), view(nll), view(workspace));
    double sum = 0;
    for (std::size_t t = 0; t < nll.size(); ++t) {
      EXPECT_TRUE(c.token_weights[t] != 0 || nll[t] == 0) << "token " << t << " is ignored";
      sum += nll[t];
    }
    EXPECT_NEAR(sum, loss[0], 1e-12 * loss[0]);
  }
}

template <class P>
struct HeadLossTest : ::testing::Test {};
TYPED_TEST_SUITE(HeadLossTest, GradientPairs);

/// Holds a run against float64; ignored tokens have no gradient.
template <class T, class G>
void expect_result(const HeadLossCase<T>& c, const Run<T, G>& r, const reference::HeadLossResult& expected) {
  EXPECT_NEAR(r.loss[0], expected.loss, head_loss_error<T> * expected.loss);
  EXPECT_EQ(r.loss[1], expected.weight);
  expect_close(r.grad_h, expected.grad_h, head_error<T>, "grad_h");
  expect_close(r.grad_weight, expected.grad_weight, head_error<T>, "grad_weight");
  for (std::int64_t t = 3; t < c.shape.tokens; t += 5)
    for (std::int64_t d = 0; d < c.shape.width; ++d)
      ASSERT_EQ(static_cast<float>(r.grad_h[t * c.shape.width + d]), 0.0f);
}

/// Runs without the weight's gradient, and without any, have the bits of the whole in what they give.
template <class T, class G>
void expect_same_in_parts(const HeadLossCase<T>& c, const Run<T, G>& whole) {
  const TestExec exec;
  Shared<StepScalars> scalars;
  scalars->loss_scale = 1;
  auto workspace = c.workspace();
  Array<double> forward(2, -1), loss(2, -1);
  HeadLoss<T>(*exec, c.shape).run(*exec, c.input(), view(forward), view(workspace));
  EXPECT_TRUE(same_bits(forward, whole.loss)) << "forward alone";
  Array<T> grad_h(c.h.size(), T(7));
  HeadLossGrad<T, G>(*exec, c.shape, WeightGradient::none)
      .run(*exec, c.input(), scalars.get(), view(loss), matrix(grad_h, c.shape.tokens), {}, view(workspace));
  EXPECT_TRUE(same_bits(loss, whole.loss)) << "without the weight's gradient";
  EXPECT_TRUE(same_bits(grad_h, whole.grad_h)) << "without the weight's gradient";
}

TYPED_TEST(HeadLossTest, AgreesWithTheReferenceWholeAndInParts) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for (const HeadLossShape& s : shapes()) {
    SCOPED_TRACE(::testing::Message()
                 << s.tokens << " tokens, " << s.vocabulary << " words, cap " << s.soft_cap);
    const HeadLossCase<T> c(s);
    auto expected = reference::head_loss(s, c.input64());
    const Run<T, G> written = run<T, G>(c, false);
    expect_result(c, written, expected);
    expect_same_in_parts(c, written);
    for (double& g : expected.grad_weight) g += 0.25;
    SCOPED_TRACE("accumulated");
    expect_result(c, run<T, G>(c, true), expected);
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(HeadLossTest, GradientsAreMultipliedByTheLossScale) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const double scale = 1024;
  for (const HeadLossShape& s : {HeadLossShape{33, 1000, 20}, {440, 20000, 2}, {33, 1000, 20, 1}}) {
    const HeadLossCase<T> c(s);
    const Run<T, G> plain = run<T, G>(c, false), scaled = run<T, G>(c, false, scale);
    EXPECT_TRUE(same_bits(plain.loss, scaled.loss));
    if (std::is_same_v<T, f16>) {  // the small ones no longer vanish, so that only the exact result agrees
      auto expected = reference::head_loss(s, c.input64());
      for (double& g : expected.grad_h) g *= scale;
      for (double& g : expected.grad_weight) g *= scale;
      expect_close(scaled.grad_h, expected.grad_h, scale * head_error<T>, "grad_h");
      expect_close(scaled.grad_weight, expected.grad_weight, scale * head_error<T>, "grad_weight");
      continue;
    }
    for (std::size_t i = 0; i < plain.grad_h.size(); ++i)
      ASSERT_EQ(static_cast<double>(scaled.grad_h[i]), scale * static_cast<double>(plain.grad_h[i])) << i;
    for (std::size_t i = 0; i < plain.grad_weight.size(); ++i)
      ASSERT_EQ(static_cast<double>(scaled.grad_weight[i]), scale * static_cast<double>(plain.grad_weight[i]))
          << i;
  }
}

TEST(HeadLossScale, KeepsFp16GradientsFromVanishing) {
  // Equal logits of a token of weight 2^-10: gradients of 2^-26, below the smallest fp16.
  HeadLossCase<f16> c({1, 65536, 1});
  c.weight.assign(c.weight.size(), f16(0.0f));
  c.h[0] = f16(0x1p-10f);
  c.token_weights[0] = 0x1p-10f;
  const std::size_t other = c.targets[0] == 0 ? 1 : 0;
  EXPECT_EQ((run<f16, float>(c, false).grad_weight[other]), 0);
  EXPECT_EQ((run<f16, float>(c, false, 0x1p15).grad_weight[other]), 0x1p-21f);
}

TEST(HeadLossScale, TooLargeAScaleShowsAsInfinity) {
  const HeadLossCase<f16> c({3, 257, 8});
  const auto r = run<f16, float>(c, false, 0x1p20);
  bool finite = true;
  for (const float g : r.grad_weight) finite = finite && std::isfinite(g);
  EXPECT_FALSE(finite);
  EXPECT_TRUE(std::isfinite(r.loss[0]));
}

TYPED_TEST(HeadLossTest, AWrongTargetMakesTheLossNaN) {
  using T = typename TypeParam::T;
  for (const std::int32_t wrong : {-1, 257})
    for (const double cap : {0, 1}) {
      HeadLossCase<T> c({3, 257, 8, cap});
      c.targets[1] = wrong;
      const auto r = run<T, typename TypeParam::G>(c, false);
      EXPECT_TRUE(std::isnan(r.loss[0]));
      EXPECT_TRUE(std::isnan(static_cast<double>(r.grad_h[8])));
    }
}

TEST(HeadLossWorkspace, ChunksFitTheirBound) {
  EXPECT_EQ(head_loss_chunk(7, 257, DType::f32, Target::cpu), 7);
  for (const DType type : {DType::f64, DType::f32, DType::bf16})
    EXPECT_LT(head_loss_chunk(4500, 2000, type, Target::cuda), 4500);
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    EXPECT_LT(head_loss_chunk(440, 20000, type, Target::cpu), 440);
    EXPECT_LT(head_loss_chunk(290, 33000, type, Target::cpu), 290);
    EXPECT_EQ(head_loss_chunk(4096, 10'000'000, type, Target::cpu), 256);
  }
  const auto bytes = [](std::int64_t vocabulary) {
    return head_loss_workspace_bytes(4096, vocabulary, 2, DType::bf16, DType::f32, Target::cpu);
  };
  constexpr std::int64_t products = std::int64_t{5} << 20;
  for (const std::int64_t vocabulary : {257, 20000})
    EXPECT_LE(bytes(vocabulary), (std::int64_t{32} << 20) + products);
  EXPECT_LE(bytes(128256), 256 * head_loss_token_bytes(128256, DType::bf16) + products);
}

TEST(HeadLossAllocation, NoneInOurLaunches) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  const TestExec exec;
  const HeadLossCase<double> c({600, 20000, 2});
  HeadLossGrad<double, double> kernel(*exec, c.shape, WeightGradient::write);
  Array<double> loss(2), grad_h(c.h.size()), grad_weight(c.weight.size());
  Shared<StepScalars> scalars;
  auto workspace = c.workspace();
  const LaunchAllocations none;
  kernel.run(*exec, c.input(), scalars.get(), view(loss), matrix(grad_h, 600), matrix(grad_weight, 20000),
             view(workspace));
}

class HeadLossReference : public ::testing::TestWithParam<double> {};

TEST_P(HeadLossReference, GradientsAreFiniteDifferences) {
  HeadLossCase<double> c({6, 11, 4, GetParam()});
  const auto result = reference::head_loss(c.shape, c.input64());
  const auto compare = [&](std::vector<double>& x, const std::vector<double>& gradient, const char* name) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double old = x[i], step = 1e-5;
      x[i] = old + step;
      const double up = reference::head_loss(c.shape, c.input64()).loss;
      x[i] = old - step;
      const double down = reference::head_loss(c.shape, c.input64()).loss;
      x[i] = old;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8) << name << " " << i;
    }
  };
  compare(c.h64, result.grad_h, "h");
  compare(c.weight64, result.grad_weight, "weight");
}
INSTANTIATE_TEST_SUITE_P(Caps, HeadLossReference, ::testing::Values(0.0, 1.0));

}  // namespace
}  // namespace ztrain::kernels::kernels_head_loss_test
