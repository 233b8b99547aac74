// Kernels of layers with learned magnitudes, against their reference.

#include <gtest/gtest.h>

#include "kernels/dora/dora.hpp"
#include "kernels/dora/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_dora_test {
namespace {

using namespace ztrain::test;

/// The norm of a row as the kernels round it.
template <class T>
double kept_norm(double norm) {
  return static_cast<double>(static_cast<T>(static_cast<acc_t<T>>(norm)));
}

/// Squares of n rows, of which the third is zero.
template <class T>
Array<acc_t<T>> some_squares(std::int64_t n) {
  Array<acc_t<T>> squares = random<acc_t<T>>(n, 11);
  for (std::size_t i = 0; i < squares.size(); ++i) squares[i] = i == 2 ? 0 : squares[i] * squares[i] + 1;
  return squares;
}

template <class T>
struct Squares : ::testing::Test {};
TYPED_TEST_SUITE(Squares, FloatTypes);

TYPED_TEST(Squares, AreThoseOfTheSum) {
  using T = TypeParam;
  TestExec exec;
  for (const auto& [n, k, r] : {std::tuple{1, 1, 1}, {33, 257, 3}, {70, 512, 16}, {7, 1000, 5}}) {
    auto weight = random<T>(n * k, 1, 0.2);
    const auto a = random<T>(r * k, 2, 0.3), b = random<T>(n * r, 3, 0.1);
    Array<acc_t<T>> squares(static_cast<std::size_t>(n), 9);
    dora_squares<T>(*exec, matrix(std::as_const(weight), n), matrix(a, r), matrix(b, n), 0.7, view(squares));
    expect_close(squares, reference::dora_squares(doubles(weight), doubles(a), doubles(b), 0.7, n, k, r),
                 std::is_same_v<T, double> ? 1e-11 : 2e-5, "squares");
  }
}

TYPED_TEST(Squares, ScaleTheOutputs) {
  using T = TypeParam;
  TestExec exec;
  for (const auto& [rows, n] : {std::pair{1, 1}, {37, 300}, {64, 256}, {5, 7}})
    for (const bool with_bias : {false, true}) {
      const auto x = random<T>(rows * n, 1), magnitude = random<T>(n, 2), added = random<T>(n, 3);
      const auto squares = some_squares<T>(n);
      Array<T> y(x.size(), T(9.0f));
      dora_scale<T>(*exec, matrix(x, rows), view(magnitude), view(squares),
                    with_bias ? view(added) : Vector<const T>{}, matrix(y, rows));
      expect_close(y,
                   reference::dora_scale(doubles(x), doubles(magnitude), doubles(squares),
                                         with_bias ? doubles(added) : std::vector<double>{}, n, kept_norm<T>),
                   std::is_same_v<T, double> ? 1e-14 : 2e-6, "y");
    }
}

template <class P>
struct Magnitudes : ::testing::Test {};
TYPED_TEST_SUITE(Magnitudes, GradientPairs);

TYPED_TEST(Magnitudes, GetTheSumsOfTheirColumns) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  TestExec exec;
  for (const auto& [rows, n] : {std::pair{1, 3}, {300, 130}, {129, 64}}) {
    const auto dy = random<T>(rows * n, 1), x = random<T>(rows * n, 2, 0.3);
    const auto squares = some_squares<T>(n);
    auto expected =
        reference::dora_grad_magnitude(doubles(dy), doubles(x), doubles(squares), n, kept_norm<T>);
    Array<G> gradient(static_cast<std::size_t>(n), G(9.0f));
    const auto grad = [&](bool accumulate) {
      dora_grad_magnitude<T, G>(*exec, matrix(dy, rows), matrix(x, rows), view(squares), view(gradient),
                                accumulate);
    };
    const double error = std::is_same_v<T, double> ? 1e-13 : 2e-5;
    grad(false);
    expect_close(gradient, expected, error, "written");
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(gradient[i]);
    grad(true);
    expect_close(gradient, expected, error, "added to");
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_dora_test
