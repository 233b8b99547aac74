// Kernels of a transformer block besides products and attention: rmsnorm, rope, activations, add.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "kernels/elementwise/reference.hpp"
#include "kernels/norm/reference.hpp"
#include "kernels/norm/rmsnorm.hpp"
#include "kernels/rope/reference.hpp"
#include "kernels/rope/rope.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_light_test {
namespace {

using namespace ztrain::test;

constexpr double eps = 1e-5;
const std::vector<std::int64_t> widths = {1, 3, 257, 1000};
const std::vector<std::int64_t> heights = {1, 7, 65, 300};

template <class T>
constexpr double acc_error = std::is_same_v<T, double> ? 1e-12 : 1e-5;

template <class Types>
struct LightKernels : ::testing::Test {
  TestExec exec;
};
template <class T>
struct Elementwise : LightKernels<T> {};
template <class P>
struct Rmsnorm : LightKernels<P> {};
TYPED_TEST_SUITE(Elementwise, FloatTypes);
TYPED_TEST_SUITE(Rmsnorm, GradientPairs);

template <class T, class G>
struct RmsnormRun {
  Array<T> y, dx;
  Array<acc_t<T>> rstd;
  Array<G> dweight;
};

/// Forward then backward.
template <class T, class G>
RmsnormRun<T, G> run_rmsnorm(Exec& exec, Matrix<const T> x, const Array<T>& weight, Matrix<const T> dy,
                             Matrix<const T> addend, const Array<G>& dweight, bool accumulate) {
  const auto size = static_cast<std::size_t>(x.rows * x.cols);
  RmsnormRun<T, G> r{Array<T>(size), Array<T>(size), Array<acc_t<T>>(static_cast<std::size_t>(x.rows)),
                     dweight};
  Array<char> workspace(static_cast<std::size_t>(
                            rmsnorm_backward_workspace_bytes(x.rows, x.cols, dtype_of<T>(), build_target())),
                        '\xff');
  rmsnorm_forward<T>(exec, x, view(weight), eps, matrix(r.y, x.rows), view(r.rstd));
  rmsnorm_backward<T, G>(exec, x, view(weight), view(std::as_const(r.rstd)), dy, addend, matrix(r.dx, x.rows),
                         view(r.dweight), accumulate, workspace.data());
  return r;
}

TYPED_TEST(Rmsnorm, ForwardAndBackwardMatchTheReference) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  for (const std::int64_t rows : heights) {
    for (const std::int64_t d : widths) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d);
      const auto x = random<T>(rows * d, 1), dy = random<T>(rows * d, 2), w = random<T>(d, 3),
                 addend = random<T>(rows * d, 4);
      const auto before = random<G>(d, 5);
      const auto forward = reference::rmsnorm_forward(doubles(x), doubles(w), eps);
      const auto backward = reference::rmsnorm_backward(doubles(x), doubles(w), eps, doubles(dy));
      const auto plain =
          run_rmsnorm<T, G>(*this->exec, matrix(x, rows), w, matrix(dy, rows), {}, before, false);
      const auto added = run_rmsnorm<T, G>(*this->exec, matrix(x, rows), w, matrix(dy, rows),
                                           matrix(addend, rows), before, true);
      // A row of one or three small values has a large rstd, and dx is then a difference of large terms.
      double largest = 1;
      for (const double value : forward.rstd) largest = std::max(largest, value);
      const double error = acc_error<T> * largest;
      expect_close(plain.y, forward.y, error, "y");
      expect_close(plain.rstd, forward.rstd, error, "rstd");
      expect_close(plain.dx, backward.dx, 30 * error, "dx");
      expect_close(plain.dweight, backward.dweight, 30 * acc_error<T>, "dweight");
      expect_close(added.dx, reference::add(backward.dx, doubles(addend)), 30 * error, "dx with addend");
      expect_close(added.dweight, reference::add(backward.dweight, doubles(before)), 30 * acc_error<T>,
                   "accumulated dweight");
    }
  }
}

TYPED_TEST(Rmsnorm, GivesTheSameBitsAgainAndAtAnyAddress) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const std::int64_t rows = 65, d = 1000;
  const auto x = random<T>(rows * d, 1), dy = random<T>(rows * d, 2), w = random<T>(d, 3);
  const Array<G> none(static_cast<std::size_t>(d));
  const auto first = run_rmsnorm<T, G>(*this->exec, matrix(x, rows), w, matrix(dy, rows), {}, none, false);
  for (const std::size_t shift : {0, 1, 3, 16}) {
    Array<T> moved_x(shift), moved_dy(shift);
    moved_x.insert(moved_x.end(), x.begin(), x.end());
    moved_dy.insert(moved_dy.end(), dy.begin(), dy.end());
    const auto again = run_rmsnorm<T, G>(*this->exec, {moved_x.data() + shift, rows, d}, w,
                                         {moved_dy.data() + shift, rows, d}, {}, none, false);
    EXPECT_TRUE(same_bits(first.y, again.y) && same_bits(first.rstd, again.rstd));
    EXPECT_TRUE(same_bits(first.dx, again.dx) && same_bits(first.dweight, again.dweight));
  }
}

TYPED_TEST(Elementwise, AddRmsnormIsAddThenRmsnorm) {
  using T = TypeParam;
  const std::int64_t rows = 7, d = 257;
  auto a = random<T>(rows * d, 1);
  const auto b = random<T>(rows * d, 2), w = random<T>(d, 3);
  Array<T> sum(a.size()), y(a.size()), fused_sum(a.size()), fused_y(a.size());
  Array<acc_t<T>> rstd(static_cast<std::size_t>(rows)), fused_rstd(rstd.size());
  add<T>(*this->exec, view(std::as_const(a)), view(b), view(sum));
  rmsnorm_forward<T>(*this->exec, matrix(std::as_const(sum), rows), view(w), eps, matrix(y, rows),
                     view(rstd));
  add_rmsnorm_forward<T>(*this->exec, matrix(std::as_const(a), rows), matrix(b, rows), view(w), eps,
                         matrix(fused_sum, rows), matrix(fused_y, rows), view(fused_rstd));
  EXPECT_TRUE(same_bits(sum, fused_sum) && same_bits(y, fused_y) && same_bits(rstd, fused_rstd));
  add_rmsnorm_forward<T>(*this->exec, matrix(std::as_const(a), rows), matrix(b, rows), view(w), eps,
                         matrix(a, rows), matrix(fused_y, rows), view(fused_rstd));
  EXPECT_TRUE(same_bits(sum, a) && same_bits(y, fused_y));
}

TYPED_TEST(Elementwise, NaNReachesTheOutputs) {
  using T = TypeParam;
  const std::int64_t rows = 2, d = 40;
  auto x = random<T>(rows * d, 1);
  x[43] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  const auto other = random<T>(rows * d, 2), w = random<T>(d, 3);
  const auto run =
      run_rmsnorm<T, T>(*this->exec, matrix(std::as_const(x), rows), w, matrix(other, rows), {}, w, false);
  Array<T> y(x.size()), dgate(x.size()), dup(x.size());
  const auto input = matrix(std::as_const(x), rows), second = matrix(other, rows);
  gated_forward<T>(*this->exec, ActivationKind::silu, input, second, matrix(y, rows));
  gated_backward<T>(*this->exec, ActivationKind::silu, input, second, second, matrix(dgate, rows),
                    matrix(dup, rows));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isnan(static_cast<double>(run.y[i])), i >= 40) << i;
    EXPECT_EQ(std::isnan(static_cast<double>(run.dx[i])), i >= 40) << i;
    for (const auto* out : {&y, &dgate, &dup})
      EXPECT_EQ(std::isnan(static_cast<double>((*out)[i])), i == 43) << i;
  }
  for (const T value : run.dweight) EXPECT_TRUE(std::isnan(static_cast<double>(value)));
}

/// Rows of a and b side by side.
template <class T>
Array<T> beside(const Array<T>& a, const Array<T>& b, std::int64_t rows) {
  Array<T> both;
  const auto width = a.size() / static_cast<std::size_t>(rows),
             other = b.size() / static_cast<std::size_t>(rows);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    for (std::size_t i = 0; i < width; ++i) both.push_back(a[r * width + i]);
    for (std::size_t i = 0; i < other; ++i) both.push_back(b[r * other + i]);
  }
  return both;
}

TYPED_TEST(Elementwise, AGateOfColumnsIsThatOfMatrices) {
  using T = TypeParam;
  for (const std::int64_t rows : heights) {
    for (const std::int64_t n : {1, 8, 250, 1030}) {
      const auto gate = random<T>(rows * n, 1, 6), up = random<T>(rows * n, 2), dy = random<T>(rows * n, 3);
      Array<T> y(gate.size()), dgate(gate.size()), dup(gate.size()), of_columns(gate.size());
      auto both = beside(gate, up, rows);
      const Columns<T> left(both.data(), rows, n, 2 * n), right(both.data() + n, rows, n, 2 * n);
      gated_forward<T>(*this->exec, ActivationKind::silu, matrix(gate, rows), matrix(up, rows),
                       matrix(y, rows));
      gated_forward<T>(*this->exec, ActivationKind::silu, left, right, matrix(of_columns, rows));
      EXPECT_TRUE(same_bits(y, of_columns));
      gated_backward<T>(*this->exec, ActivationKind::silu, matrix(gate, rows), matrix(up, rows),
                        matrix(dy, rows), matrix(dgate, rows), matrix(dup, rows));
      Array<T> left_alone(gate.size()), right_alone(gate.size());
      gated_backward<T>(*this->exec, ActivationKind::silu, left, right, matrix(dy, rows),
                        matrix(left_alone, rows), matrix(right_alone, rows));
      EXPECT_TRUE(same_bits(dgate, left_alone) && same_bits(dup, right_alone));
      gated_backward<T>(*this->exec, ActivationKind::silu, left, right, matrix(dy, rows), left, right);
      EXPECT_TRUE(same_bits(beside(dgate, dup, rows), both)) << rows << " x " << n;
    }
  }
}

TYPED_TEST(Elementwise, RopeTurnsTheFirstHeadsAndLeavesWhatIsBehindThem) {
  using T = TypeParam;
  for (const std::int64_t rows : heights) {
    const std::int64_t hd = 10, heads = 3, others = 2;
    const auto x = random<T>(rows * heads * hd, 1), rest = random<T>(rows * others * hd, 2);
    const auto table = random<acc_t<T>>(rows * hd, 3);
    Array<T> y(x.size());
    rope_apply<T>(*this->exec, matrix(x, rows), matrix(table, rows), {}, matrix(y, rows));
    const auto expected = beside(y, rest, rows);
    auto both = beside(x, rest, rows);
    Array<T> apart(both.size());
    const auto input = matrix(std::as_const(both), rows);
    rope_apply<T>(*this->exec, input, matrix(table, rows), {.heads = heads}, matrix(apart, rows));
    EXPECT_TRUE(same_bits(expected, apart));
    rope_apply<T>(*this->exec, input, matrix(table, rows), {.heads = heads}, matrix(both, rows));
    EXPECT_TRUE(same_bits(expected, both)) << "in place";
  }
}

TYPED_TEST(Elementwise, AddMatchesTheReferenceAndMayBeInPlace) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 3, 257, 1000}) {
    auto a = random<T>(n, 1), b = random<T>(n, 2);
    Array<T> c(a.size());
    add<T>(*this->exec, view(std::as_const(a)), view(std::as_const(b)), view(c));
    expect_close(c, reference::add(doubles(a), doubles(b)), 0, "sum");
    auto left = a, right = b;
    add<T>(*this->exec, view(std::as_const(left)), view(std::as_const(b)), view(left));
    add<T>(*this->exec, view(std::as_const(a)), view(std::as_const(right)), view(right));
    EXPECT_TRUE(same_bits(c, left) && same_bits(c, right));
  }
}

TYPED_TEST(Elementwise, RopeMatchesTheReferenceAndItsInverseUndoesIt) {
  using T = TypeParam;
  for (const std::int64_t rows : heights) {
    for (const std::int64_t hd : {2, 6, 64, 128}) {
      const std::int64_t heads = 3;
      Array<std::int32_t> positions;
      for (std::int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<std::int32_t>(t * 97 % 4096));
      const auto x = random<T>(rows * heads * hd, 1);
      Array<acc_t<T>> table(static_cast<std::size_t>(rows * hd));
      Array<T> y(x.size()), back(x.size()), in_place = x;
      rope_table<acc_t<T>>(*this->exec, view(std::as_const(positions)),
                           rope_frequencies({1e4, "default"}, hd), matrix(table, rows));
      const auto angles = matrix(std::as_const(table), rows);
      rope_apply<T>(*this->exec, matrix(x, rows), angles, {}, matrix(y, rows));
      rope_apply<T>(*this->exec, matrix(std::as_const(y), rows), angles, {.inverse = true},
                    matrix(back, rows));
      rope_apply<T>(*this->exec, matrix(std::as_const(in_place), rows), angles, {}, matrix(in_place, rows));
      const auto frequencies = reference::rope_frequencies(static_cast<std::size_t>(hd), 1e4);
      // A GPU's power may be off by two units in the last place, and with it angles of up to 4096, of x of up
      // to 4.
      const double error = std::max(acc_error<T>, test_gpu() > 0 ? 4 * 4096 * 0x1p-51 : 0);
      expect_close(y, reference::rope_apply(doubles(x), positions, frequencies, 1), error, "rope");
      expect_close(back, reference::rope_apply(doubles(y), positions, frequencies, -1), error, "inverse");
      expect_close(back, doubles(x), 8 * rounding<T> + error, "there and back");
      EXPECT_TRUE(same_bits(y, in_place));
    }
  }
}

TEST(Rope, Llama3ScalingKeepsShortWavesStretchesLongOnesAndBlendsBetween) {
  const TestExec exec;
  const std::int64_t hd = 128;
  const double theta = 5e5, pi = std::acos(-1.0);
  const Array<std::int32_t> positions = {0, 1, 5000};
  Array<double> table(static_cast<std::size_t>(3 * hd));
  rope_table<double>(*exec, view(positions), rope_frequencies({theta, "llama3", 8, 1, 4, 8192}, hd),
                     matrix(table, 3));
  int kept = 0, stretched = 0, blended = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    double frequency = reference::rope_frequencies(128, theta)[i];
    const double wavelength = 2 * pi / frequency;
    if (wavelength < 8192.0 / 4) {
      ++kept;
    } else if (wavelength > 8192.0 / 1) {
      frequency /= 8;
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      frequency = (1 - smooth) * frequency / 8 + smooth * frequency;
      ++blended;
    }
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_NEAR(table[t * 128 + i], std::cos(positions[t] * frequency), 1e-10) << i;
      EXPECT_NEAR(table[t * 128 + 64 + i], std::sin(positions[t] * frequency), 1e-10) << i;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(stretched, 20);
  EXPECT_GT(blended, 3);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_light_test
