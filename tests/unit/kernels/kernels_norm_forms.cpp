// Norms besides plain RMSNorm: of gain 1 + weight, centred with a bias, and of rows whose columns ranks
// share.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/elementwise/reference.hpp"
#include "kernels/norm/layer_norm.hpp"
#include "kernels/norm/reference.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/norm/wide_norm.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::norm_forms_test {
namespace {

using namespace ztrain::test;

constexpr double small = 1e-5;  ///< added to mean squares and variances

/// Error of a sum of many terms near 1.
template <class T>
constexpr double acc_error = std::is_same_v<T, double> ? 1e-12 : 1e-5;

template <class Types>
class NormForms : public testing::Test {
 protected:
  TestExec exec;
};
TYPED_TEST_SUITE(NormForms, GradientPairs);

template <class T>
Array<char> workspace_for(std::int64_t rows, std::int64_t d) {
  return Array<char>(
      static_cast<std::size_t>(rmsnorm_backward_workspace_bytes(rows, d, dtype_of<T>(), build_target())),
      '\xff');
}

std::vector<double> plus_one(std::vector<double> weight) {
  for (double& w : weight) w += 1;
  return weight;
}

/// The largest of the values, at least 1: rows of few elements have large ones.
double largest(const std::vector<double>& values) {
  return std::max(1.0, *std::ranges::max_element(values));
}

constexpr std::int64_t sizes[][2] = {{1, 1}, {7, 8}, {65, 250}, {9, 1030}, {3, 4100}};

TYPED_TEST(NormForms, AGainOfOnePlusTheWeightIsThatOfALargerWeight) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for (const auto& [rows, d] : sizes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << d);
    const auto x = random<T>(rows * d, 1), dy = random<T>(rows * d, 2), w = random<T>(d, 3, 0.3);
    const auto expected = reference::rmsnorm_forward(doubles(x), plus_one(doubles(w)), small);
    const auto slopes = reference::rmsnorm_backward(doubles(x), plus_one(doubles(w)), small, doubles(dy));
    Array<T> y(x.size()), dx(x.size()), sum(x.size()), fused(x.size());
    const Array<T> zeros(x.size());
    Array<acc_t<T>> rstd(static_cast<std::size_t>(rows));
    Array<G> dw(static_cast<std::size_t>(d));
    auto workspace = workspace_for<T>(rows, d);
    rmsnorm_forward<T>(*this->exec, matrix(x, rows), view(w), small, matrix(y, rows), view(rstd), true);
    rmsnorm_backward<T, G>(*this->exec, matrix(x, rows), view(w), view(std::as_const(rstd)), matrix(dy, rows),
                           {}, matrix(dx, rows), view(dw), false, workspace.data(), true);
    const double error = acc_error<T> * largest(expected.rstd);
    expect_close(y, expected.y, 3 * error, "y");
    expect_close(dx, slopes.dx, 60 * error, "dx");
    expect_close(dw, slopes.dweight, 30 * acc_error<T>, "dweight");
    add_rmsnorm_forward<T>(*this->exec, matrix(x, rows), matrix(zeros, rows), view(w), small,
                           matrix(sum, rows), matrix(fused, rows), view(rstd), true);
    EXPECT_TRUE(same_bits(y, fused));
  }
}

/// LayerNorm in float64: y, and the gradients of sum(y dy).
struct Centred {
  std::vector<double> y, rstd, dx, dweight;
};
Centred centred(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& bias,
                const std::vector<double>& dy) {
  const std::size_t d = w.size();
  const auto n = static_cast<double>(d);
  Centred r{std::vector<double>(x.size()), {}, std::vector<double>(x.size()), std::vector<double>(d)};
  for (std::size_t row = 0; row < x.size(); row += d) {
    double mean = 0, variance = 0, along = 0, total = 0;
    for (std::size_t i = 0; i < d; ++i) mean += x[row + i] / n;
    for (std::size_t i = 0; i < d; ++i) variance += (x[row + i] - mean) * (x[row + i] - mean) / n;
    const double rstd = 1 / std::sqrt(variance + small);
    r.rstd.push_back(rstd);
    for (std::size_t i = 0; i < d; ++i) {
      const double normal = (x[row + i] - mean) * rstd;
      r.y[row + i] = normal * w[i] + bias[i];
      r.dweight[i] += dy[row + i] * normal;
      along += dy[row + i] * w[i] * normal / n;
      total += dy[row + i] * w[i] / n;
    }
    for (std::size_t i = 0; i < d; ++i)
      r.dx[row + i] = rstd * (dy[row + i] * w[i] - total - (x[row + i] - mean) * rstd * along);
  }
  return r;
}

TYPED_TEST(NormForms, LayerNormMatchesTheReference) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for (const auto& [rows, d] : sizes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << d);
    auto x = random<T>(rows * d, 1);
    for (T& value : x) value = static_cast<T>(static_cast<float>(value) + 2);  // a mean that matters
    const auto dy = random<T>(rows * d, 2), w = random<T>(d, 3), bias = random<T>(d, 4),
               addend = random<T>(rows * d, 5);
    const auto before = random<G>(d, 6);
    const Centred expected = centred(doubles(x), doubles(w), doubles(bias), doubles(dy));
    Array<T> y(x.size()), dx(x.size());
    Array<acc_t<T>> mean(static_cast<std::size_t>(rows)), rstd(mean.size());
    Array<G> dw = before;
    auto workspace = workspace_for<T>(rows, d);
    layer_norm_forward<T>(*this->exec, matrix(std::as_const(x), rows), view(w), view(bias), small,
                          matrix(y, rows), view(mean), view(rstd));
    layer_norm_backward<T, G>(*this->exec, matrix(std::as_const(x), rows), view(w), view(std::as_const(mean)),
                              view(std::as_const(rstd)), matrix(dy, rows), matrix(addend, rows),
                              matrix(dx, rows), view(dw), true, workspace.data());
    const double error = acc_error<T> * largest(expected.rstd);
    expect_close(y, expected.y, 10 * error, "y");
    expect_close(dx, reference::add(expected.dx, doubles(addend)), 100 * error, "dx");
    expect_close(dw, reference::add(expected.dweight, doubles(before)), 100 * acc_error<T>, "dweight");
  }
}

/// Columns [begin, end) of each row.
template <class T>
Array<T> columns(const Array<T>& x, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  Array<T> some;
  const auto d = static_cast<std::int64_t>(x.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = begin; i < end; ++i) some.push_back(x[static_cast<std::size_t>(row * d + i)]);
  return some;
}

/// Columns [begin, end) of rows of width d, of which those before `first` are summed by another part.
struct Part {
  std::int64_t begin, end, first, d;
  std::size_t whole(std::int64_t i) const {
    const std::int64_t width = end - begin;
    return static_cast<std::size_t>(i / width * d + begin + i % width);
  }
};

/// What a part has of the gradients.
template <class T, class G>
struct PartRun {
  Array<T> y, dx;
  Array<G> dweight;
  Array<acc_t<T>> dsquares;
};

template <class T, class G>
PartRun<T, G> scaled(Exec& exec, const Part& part, std::int64_t rows, const Array<T>& x, const Array<T>& w,
                     const Array<T>& dy, const Array<acc_t<T>>& squares) {
  const auto px = columns(x, rows, part.begin, part.end), pdy = columns(dy, rows, part.begin, part.end);
  const Array<T> pw(w.begin() + part.begin, w.begin() + part.end);
  PartRun<T, G> r{Array<T>(px.size()), Array<T>(px.size()), Array<G>(pw.size()),
                  Array<acc_t<T>>(squares.size())};
  auto workspace = workspace_for<T>(rows, part.end - part.begin);
  const WideRow row{part.d, small};
  rms_scale_forward<T>(exec, matrix(px, rows), view(pw), view(squares), row, matrix(r.y, rows));
  rms_scale_backward<T, G>(exec, matrix(px, rows), view(pw), view(squares), matrix(pdy, rows), row,
                           matrix(r.dx, rows), view(r.dweight), view(r.dsquares), false, workspace.data());
  return r;
}

/// The norm of whole rows by two parts, which may share columns. What both have counts twice in the gradient
/// of y.
TYPED_TEST(NormForms, PartsOfRowsGiveTheNormOfTheWholeAndItsGradients) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const std::int64_t rows = 9, d = 300, end = 170;
  const auto x = random<T>(rows * d, 1), dy = random<T>(rows * d, 2), w = random<T>(d, 3);
  const auto expected = reference::rmsnorm_forward(doubles(x), doubles(w), small);
  for (const std::int64_t shared : {end, std::int64_t{100}}) {
    SCOPED_TRACE(testing::Message() << "columns from " << shared << " in both");
    const Part parts[] = {{0, end, 0, d}, {shared, d, end - shared, d}};
    auto both = doubles(dy);
    for (std::int64_t i = 0; i < rows * d; ++i)
      if (i % d >= shared && i % d < end) both[static_cast<std::size_t>(i)] *= 2;
    const auto slopes = reference::rmsnorm_backward(doubles(x), doubles(w), small, both);
    Array<acc_t<T>> squares(static_cast<std::size_t>(rows)), dsquares(squares.size());
    for (const Part& part : parts) {
      Array<acc_t<T>> own(squares.size());
      const auto px = columns(x, rows, part.begin, part.end);
      row_squares<T>(*this->exec, matrix(px, rows), part.first, view(own));
      for (std::size_t row = 0; row < own.size(); ++row) squares[row] += own[row];
    }
    std::vector<PartRun<T, G>> runs;
    for (const Part& part : parts) {
      runs.push_back(scaled<T, G>(*this->exec, part, rows, x, w, dy, squares));
      for (std::size_t row = 0; row < squares.size(); ++row) dsquares[row] += runs.back().dsquares[row];
    }
    std::vector<double> dx(x.size()), dw(w.size());
    for (int p = 0; p < 2; ++p) {
      const auto px = columns(x, rows, parts[p].begin, parts[p].end);
      Array<T> along(px.size());
      row_squares_backward<T>(*this->exec, matrix(px, rows), parts[p].first, view(std::as_const(dsquares)),
                              matrix(along, rows));
      for (std::int64_t i = 0; i < std::ssize(along); ++i) {
        const auto at = static_cast<std::size_t>(i), to = parts[p].whole(i);
        dx[to] += static_cast<double>(runs[p].dx[at]) + static_cast<double>(along[at]);
        EXPECT_NEAR(static_cast<double>(runs[p].y[at]), expected.y[to],
                    2 * rounding<T> * std::abs(expected.y[to]) + 10 * acc_error<T>);
      }
      for (std::size_t i = 0; i < runs[p].dweight.size(); ++i)
        dw[static_cast<std::size_t>(parts[p].begin) + i] += static_cast<double>(runs[p].dweight[i]);
    }
    for (std::size_t i = 0; i < dx.size(); ++i)
      EXPECT_NEAR(dx[i], slopes.dx[i], 40 * (rounding<T> + acc_error<T>));
    for (std::size_t i = 0; i < dw.size(); ++i)
      EXPECT_NEAR(dw[i], slopes.dweight[i], 60 * rounding<G> + 100 * acc_error<T>);
  }
}

}  // namespace
}  // namespace ztrain::kernels::norm_forms_test
