// Matrix products, the linear layer, and the exponential function inside the fused kernels.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_ways.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/product_case.hpp"
#include "tests/support/product_workspace.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_heavy_test {
namespace {

using namespace ztrain::test;

TEST(FastExp, AccurateWhereSoftmaxUsesIt) {
  double worst = 0;
  for (float x = -86.4f; x <= 88.0f; x += 0.00173f)
    worst =
        std::max(worst, std::abs(static_cast<double>(fast_exp(x)) / std::exp(static_cast<double>(x)) - 1));
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
}

TEST(FastTanh, IsTanh) {
  double worst = 0;
  for (float x = 1e-6f; x < 100; x *= 1.001f) {
    worst =
        std::max(worst, std::abs(static_cast<double>(fast_tanh(x)) / std::tanh(static_cast<double>(x)) - 1));
    ASSERT_EQ(fast_tanh(-x), -fast_tanh(x));
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(fast_tanh(0.0f), 0.0f);
  EXPECT_EQ(fast_tanh(std::numeric_limits<float>::infinity()), 1.0f);
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastExp, Ends) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_exp(-86.6f), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_EQ(fast_exp(-infinity), 0.0f);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(fast_exp(infinity) / std::exp(88.0), 1, 1e-6);
}

using Maker = std::unique_ptr<Gemm> (*)(const GemmShape&, DType, DType);

template <class In, class Out>
void check_product(Maker maker, ProductWorkspace& space, Size size, int variant) {
  const bool trans_a = variant & 1, trans_b = variant & 2, accumulate = variant & 4, bias = variant & 8;
  const int gap = variant & 16 ? 5 : 0;
  GemmShape s = complete({.trans_a = trans_a,
                          .trans_b = trans_b,
                          .m = size.m,
                          .n = size.n,
                          .k = size.k,
                          .accumulate = accumulate,
                          .bias = bias});
  s.lda += gap;
  s.ldb += gap;
  s.ldc += gap;
  ProductCase<In, Out> product(s);
  const TestExec exec;
  maker(s, dtype_of<In>(), dtype_of<Out>())
      ->run(*exec, product.a.data(), product.b.data(), product.bias.data(), product.c.data(),
            space.of(s.m, s.n, s.k, dtype_of<In>(), dtype_of<Out>()));
  product.expect_result(product_error<In>(s.k + 2));
}

template <class In, class Out>
void check_products(Maker maker, const std::vector<Size>& all = sizes) {
  ProductWorkspace space;
  for (const Size size : all)
    for (int variant = 0; variant < 32; ++variant) {
      SCOPED_TRACE(::testing::Message()
                   << size.m << " " << size.n << " " << size.k << " variant " << variant);
      check_product<In, Out>(maker, space, size, variant);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST(GemmTest, Fp32) {
  check_products<float, float>(make_gemm);
}
TEST(GemmTest, Bf16) {
  check_products<bf16, bf16>(make_gemm);
}
TEST(GemmTest, Bf16ToFp32) {
  check_products<bf16, float>(make_gemm);
}
TEST(GemmTest, Fp16) {
  check_products<f16, f16>(make_gemm);
}
TEST(GemmTest, Fp16ToFp32) {
  check_products<f16, float>(make_gemm);
}
TEST(GemmTest, Fp16OverSeveralPanels) {
  const std::vector<Size> large = {{1030, 20, 3}, {5, 1025, 40}, {30, 9, 2050}};
  check_products<f16, f16>(make_gemm, large);
  check_products<f16, float>(make_gemm, large);
  ProductWorkspace space;
  check_product<f16, f16>(make_gemm, space, {1026, 1027, 3}, 1 | 4 | 8 | 16);
}
TEST(GemmTest, Fp16SumsAreRoundedOnce) {
  // 2048 + 1 is a tie in fp16 that rounds back to 2048: a sum in fp16 would stay there.
  const TestExec exec;
  const std::int64_t k = 3000;
  Array<f16> a(static_cast<std::size_t>(k), f16(1.0f)), c(1);
  ProductWorkspace space;
  make_gemm({.m = 1, .n = 1, .k = k}, DType::f16, DType::f16)
      ->run(*exec, a.data(), a.data(), nullptr, c.data(), space.of(1, 1, k, DType::f16, DType::f16));
  EXPECT_EQ(static_cast<float>(c[0]), 3000.0f);
}
TEST(GemmTest, Fp64) {
  check_products<double, double>(make_gemm);
}
template <class T>
void check_row_products() {
  ProductWorkspace space;
  for (const Size size : {Size{1, 1, 1}, {1, 65, 63}, {1, 130, 2113}, {1, 3, 4200}})
    for (const bool bias : {false, true}) {
      check_product<T, T>(make_gemm_row, space, size, 2 | (bias ? 8 : 0));
      check_product<T, T>(make_gemm_row, space, size, 2 | (bias ? 8 : 0) | 16);
    }
}
TEST(GemmTest, OneRow) {
  check_row_products<float>();
  check_row_products<bf16>();
  check_row_products<f16>();
  check_row_products<double>();
  EXPECT_THROW(make_gemm_row({.trans_b = true, .m = 2, .n = 4, .k = 5}, DType::f32, DType::f32), Error);
  EXPECT_THROW(make_gemm_row({.m = 1, .n = 4, .k = 5}, DType::f32, DType::f32), Error);
}
TEST(GemmTest, ReferenceLoop) {
  check_products<float, float>(make_gemm_reference);
  check_products<bf16, bf16>(make_gemm_reference);
  check_products<bf16, float>(make_gemm_reference);
  check_products<f16, f16>(make_gemm_reference);
  check_products<f16, float>(make_gemm_reference);
}

TEST(GemmTest, RunsAgainWithOtherPointers) {
  const TestExec exec;
  ProductWorkspace space;
  const auto gemm = make_gemm({.m = 3, .n = 4, .k = 5}, DType::f32, DType::f32);
  Array<float> first(12), second(12), again(12);
  const auto a = random<float>(15, 1), b = random<float>(20, 2), other = random<float>(15, 3);
  gemm->run(*exec, a.data(), b.data(), nullptr, first.data(), space.of_any());
  gemm->run(*exec, other.data(), b.data(), nullptr, second.data(), space.of_any());
  gemm->run(*exec, a.data(), b.data(), nullptr, again.data(), space.of_any());
  EXPECT_TRUE(same_bits(first, again));
  EXPECT_FALSE(same_bits(first, second));
}

TEST(GemmTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(make_gemm({.m = 0, .n = 4, .k = 5}, DType::f32, DType::f32), Error);
  EXPECT_THROW(make_gemm({.m = 3, .n = 4, .k = 5, .lda = 4}, DType::f32, DType::f32), Error);
  EXPECT_THROW(make_gemm({.m = 3, .n = 4, .k = 5}, DType::f32, DType::bf16), Error);
  EXPECT_THROW(make_gemm({.m = 3, .n = 4, .k = 5}, DType::f16, DType::bf16), Error);
}

TEST(GemmTest, ScratchpadsFitTheReservation) {
  // Within the library's implementations: a shape that none fits would fall back to the loop and be slow, not
  // wrong, so the fallback's type tells them apart, and on GPUs what is said of it.
  const TestExec exec;
  const auto reference = make_gemm_reference({.m = 1, .n = 1, .k = 1}, DType::bf16, DType::f32);
  for (const Size s :
       {Size{8192, 28672, 8192}, Size{28672, 8192, 8192}, Size{64, 128256, 8192}, Size{128256, 4096, 64}})
    for (const bool trans_a : {false, true}) {
      const auto gemm = make_gemm(
          {.trans_a = trans_a, .trans_b = !trans_a, .m = s.m, .n = s.n, .k = s.k, .accumulate = trans_a},
          DType::bf16, DType::f32);
      gemm->prepare(*exec);
      EXPECT_FALSE(typeid(*gemm) == typeid(*reference)) << s.m << " " << s.n << " " << s.k;
      EXPECT_FALSE(gemm->slow()) << gemm->implementation();
    }
}

/// cuBLASLt's bias has the type of the result, ours that of the factors.
TEST(GemmTest, SaysWhereAGpuTakesALoop) {
  const TestExec exec;
  const bool gpu = test_gpu() > 0;
  const auto prepared = [&](DType in, DType out, bool bias) {
    auto gemm = make_gemm({.trans_b = true, .m = 64, .n = 32, .k = 48, .bias = bias}, in, out);
    gemm->prepare(*exec);
    return gemm;
  };
  const auto slow = prepared(DType::bf16, DType::f32, true);
  EXPECT_EQ(slow->slow(), gpu);
  for (const char* part : {"without tensor cores", "bias of bf16", "bf16 -> fp32 m 64 n 32 k 48"})
    EXPECT_EQ(slow->implementation().find(part) != std::string::npos, gpu) << slow->implementation();
  EXPECT_FALSE(prepared(DType::bf16, DType::f32, false)->slow());
  EXPECT_FALSE(prepared(DType::bf16, DType::bf16, true)->slow());
  EXPECT_FALSE(prepared(DType::f64, DType::f64, true)->slow()) << "no tensor cores are left idle";
}

template <class P>
struct Linear : ::testing::Test {};
TYPED_TEST_SUITE(Linear, GradientPairs);

TYPED_TEST(Linear, ForwardAndGradients) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const TestExec exec;
  ProductWorkspace space;
  for (const auto& [tokens, out, in] : sizes) {
    SCOPED_TRACE(::testing::Message() << tokens << " " << out << " " << in);
    const auto x = random<T>(tokens * in, 1), w = random<T>(out * in, 2), bias = random<T>(out, 3);
    const auto dy = random<T>(tokens * out, 4);
    const auto expected = reference::linear(doubles(x), doubles(w), doubles(bias), tokens, in, out);
    auto gradients = reference::linear_gradients(doubles(x), doubles(w), doubles(dy), tokens, in, out);
    Array<T> y(tokens * out), dx(tokens * in);
    Array<G> dw(out * in), db(out);
    const LinearShape s{tokens, in, out};
    const DType t = dtype_of<T>(), g = dtype_of<G>();
    make_linear(s, t, true)->run(*exec, x.data(), w.data(), bias.data(), y.data(), space.of_any());
    make_linear_grad_input(s, t, false)->run(*exec, dy.data(), w.data(), nullptr, dx.data(), space.of_any());
    make_linear_grad_weight(s, t, g, false)
        ->run(*exec, dy.data(), x.data(), nullptr, dw.data(), space.of_any());
    linear_grad_bias<T, G>(*exec, matrix(dy, tokens), view(db), false);
    expect_close(y, expected, product_error<T>(in + 1), "y");
    expect_close(dx, gradients.x, product_error<T>(out), "dx");
    expect_close(dw, gradients.w, product_error<T>(tokens), "dw");
    expect_close(db, gradients.bias, product_error<T>(tokens), "db");
    // Once more on top: exactly what is there plus the same again, rounded once.
    const auto twice = [](std::vector<double> sums, const auto& old) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(old[i]);
      return sums;
    };
    const auto dx2 = twice(gradients.x, dx), dw2 = twice(gradients.w, dw), db2 = twice(gradients.bias, db);
    make_linear_grad_input(s, t, true)->run(*exec, dy.data(), w.data(), nullptr, dx.data(), space.of_any());
    make_linear_grad_weight(s, t, g, true)
        ->run(*exec, dy.data(), x.data(), nullptr, dw.data(), space.of_any());
    linear_grad_bias<T, G>(*exec, matrix(dy, tokens), view(db), true);
    expect_close(dx, dx2, 2 * product_error<T>(out), "dx twice");
    expect_close(dw, dw2, 2 * product_error<T>(tokens), "dw twice");
    expect_close(db, db2, 2 * product_error<T>(tokens), "db twice");
  }
}

TEST(LinearAllocation, NoneInOurLaunches) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  const TestExec exec;
  ProductWorkspace space;
  const auto a = random<double>(15, 1), b = random<double>(20, 2);
  Array<double> c(12), db(4);
  const auto gemm = make_gemm({.m = 3, .n = 4, .k = 5}, DType::f64, DType::f64);
  char* const scratch = space.of_any();
  const LaunchAllocations none;
  gemm->run(*exec, a.data(), b.data(), nullptr, c.data(), scratch);
  linear_grad_bias<double, double>(*exec, {c.data(), 3, 4}, view(db), false);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_heavy_test
