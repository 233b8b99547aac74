// Linear layers of rows in groups, with every way that a processor has of forming their products. CTest runs
// this for several values of ONEDNN_MAX_CPU_ISA as well.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/grouped/grouped.hpp"
#include "kernels/grouped/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/product_case.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_grouped_test {
namespace {

using namespace ztrain::test;
using Offsets = Array<std::int32_t>;

/// How an Exec forms products.
struct Ways {
  Bf16Products bf16 = Bf16Products::widened;
  Fp32Products fp32 = Fp32Products::native;
};
const Ways widened{}, native{Bf16Products::native, Fp32Products::split};

Offsets offsets_of(const std::vector<int>& sizes) {
  Offsets offsets(sizes.size() + 1);
  std::partial_sum(sizes.begin(), sizes.end(), offsets.begin() + 1);
  return offsets;
}

/// Operands of a layer; rows of no group, of which `spare` are behind the others, are NaN.
template <class T, class G>
struct Layer {
  GroupedShape s;
  Offsets offsets;
  Array<T> x, w, bias, dy, y, dx;
  Array<G> dw, db;

  Layer(std::int64_t in, std::int64_t out, const std::vector<int>& sizes, int spare)
      : s{std::ssize(sizes), std::accumulate(sizes.begin(), sizes.end(), spare), in, out},
        offsets(offsets_of(sizes)),
        x(random<T>(s.rows * in, 1)),
        w(random<T>(s.groups * out * in, 2)),
        bias(random<T>(s.groups * out, 3)),
        dy(random<T>(s.rows * out, 4)),
        y(s.rows * out, nan<T>()),
        dx(s.rows * in, nan<T>()),
        dw(s.groups * out * in, nan<G>()),
        db(s.groups * out, nan<G>()) {
    std::fill(x.end() - spare * in, x.end(), nan<T>());
    std::fill(dy.end() - spare * out, dy.end(), nan<T>());
  }

  template <class E>
  static E nan() {
    return static_cast<E>(std::numeric_limits<float>::quiet_NaN());
  }

  void run(const Ways& ways, bool accumulate) {
    const TestExec exec;
    gemm_library(*exec).bf16 = ways.bf16;
    gemm_library(*exec).fp32 = ways.fp32;
    const DType t = dtype_of<T>(), g = dtype_of<G>();
    const auto product = [&](const std::unique_ptr<GroupedProduct>& made, std::int64_t workspace,
                             const auto& a, const auto& b, auto& c, const Array<T>* row) {
      constexpr std::int64_t guard = 64;
      Array<char> space(static_cast<std::size_t>(workspace + guard), '\xff');
      made->prepare(*exec);
      const std::string how = made->implementation();
      if (test_gpu() == 0 && sizeof(T) < 8) {
        EXPECT_TRUE(how.find("ref") == how.npos && how.find("loop") == how.npos) << how;
      }
      made->run(*exec,
                {offsets.data(), a.data(), b.data(), row ? row->data() : nullptr, c.data(), space.data()});
      EXPECT_EQ(std::string(space.end() - guard, space.end()), std::string(guard, '\xff'))
          << "workspace overrun by " << how;
    };
    const auto bytes = [&](std::int64_t m, std::int64_t n, std::int64_t k, DType out) {
      return grouped_workspace_bytes(m, n, k, t, out, build_target());
    };
    if (!accumulate) product(make_grouped_linear(s, t, true), bytes(s.rows, s.out, s.in, t), x, w, y, &bias);
    product(make_grouped_grad_input(s, t, accumulate), bytes(s.rows, s.in, s.out, t), dy, w, dx, nullptr);
    product(make_grouped_grad_weight(s, t, g, accumulate), bytes(s.out, s.in, s.rows, g), dy, x, dw, nullptr);
    grouped_grad_bias<T, G>(*exec, matrix(dy, s.rows), offsets.data(), matrix(db, s.groups), accumulate);
  }
};

/// The first elements, which are those of rows in groups.
template <class Values>
Values begin_of(const Values& values, std::int64_t count) {
  Values begin(static_cast<std::size_t>(count));
  std::copy_n(values.begin(), count, begin.begin());
  return begin;
}

template <class P>
struct Grouped : ::testing::Test {};
TYPED_TEST_SUITE(Grouped, GradientPairs);

TYPED_TEST(Grouped, ForwardAndGradients) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  struct Case {
    std::int64_t in, out;
    std::vector<int> sizes;
    int spare;
  };
  for (const Case& c : {Case{7, 5, {3, 0, 1, 2}, 0}, Case{64, 96, {0, 33, 1, 70, 0}, 5},
                        Case{257, 33, {1}, 3}, Case{40, 130, {64, 65, 0, 2}, 1}, Case{3, 4, {0, 0}, 2}})
    for (const Ways& ways : {widened, native}) {
      SCOPED_TRACE(::testing::Message() << c.in << " -> " << c.out << ", " << c.sizes.size() << " groups, "
                                        << (ways.bf16 == Bf16Products::native ? "native" : "widened"));
      Layer<T, G> layer(c.in, c.out, c.sizes, c.spare);
      const std::vector<std::int32_t> offsets(layer.offsets.begin(), layer.offsets.end());
      const std::int64_t rows = offsets.back(), most = *std::ranges::max_element(c.sizes);
      const auto x = doubles(begin_of(layer.x, rows * c.in)), dy = doubles(begin_of(layer.dy, rows * c.out));
      const auto w = doubles(layer.w), bias = doubles(layer.bias);
      const auto y = reference::grouped_linear(x, w, bias, offsets, c.in, c.out);
      const auto gradients = reference::grouped_gradients(x, w, dy, offsets, c.in, c.out);
      layer.run(ways, false);
      expect_close(begin_of(layer.y, rows * c.out), y, product_error<T>(c.in + 1), "y");
      const auto first = layer;
      layer.run(ways, true);
      const auto check = [](const auto& once, const auto& twice, std::vector<double> expected,
                            std::int64_t terms, const char* what) {
        const auto before = begin_of(once, std::ssize(expected));
        expect_close(before, expected, product_error<T>(terms), what);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(before[i]);
        expect_close(begin_of(twice, std::ssize(expected)), expected, 2 * product_error<T>(terms), what);
      };
      check(first.dx, layer.dx, gradients.x, c.out, "dx");
      check(first.dw, layer.dw, gradients.w, most, "dw");
      check(first.db, layer.db, gradients.bias, most, "db");
      if (this->HasFatalFailure()) return;
    }
}

/// Sizes beyond the panels that products are cut into: against those of one group at a time.
TYPED_TEST(Grouped, LargeGroupsAreProducts) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  if (sizeof(T) == 8) GTEST_SKIP() << "there are no panels of fp64";
  constexpr std::int64_t in = 1100, out = 1060;
  for (const Ways& ways : {widened, native}) {
    Layer<T, G> layer(in, out, {2, 530, 1030}, 0);
    layer.run(ways, false);
    const auto sampled = [](const auto& values, std::int64_t index, std::int64_t terms, const auto& term,
                            const char* what) {
      double sum = 0;
      for (std::int64_t i = 0; i < terms; ++i) sum += term(i);
      const auto value = static_cast<double>(values[index]);
      using V = std::decay_t<decltype(values[0])>;
      ASSERT_NEAR(value, sum, 1.01 * rounding<V> * std::abs(sum) + product_error<T>(terms))
          << what << " " << index;
    };
    const auto number = [](const auto& values, std::int64_t i) { return static_cast<double>(values[i]); };
    settle();
    for (std::int64_t sample = 0; sample < 300; ++sample) {
      const std::int64_t e = sample % 3, begin = layer.offsets[e], rows = layer.offsets[e + 1] - begin;
      const std::int64_t r = begin + (sample < 12 ? (sample % 4 < 2 ? 0 : rows - 1) : sample * 7919 % rows);
      const std::int64_t i = sample % 2 ? in - 1 - sample : sample * 104729 % in;
      const std::int64_t o = sample % 2 ? out - 1 - sample : sample * 1299709 % out;
      const std::int64_t at = (e * out + o) * in + i;
      sampled(
          layer.y, r * out + o, in + 1,
          [&](std::int64_t d) {
            return d == in ? number(layer.bias, e * out + o)
                           : number(layer.x, r * in + d) * number(layer.w, (e * out + o) * in + d);
          },
          "y");
      sampled(
          layer.dx, r * in + i, out,
          [&](std::int64_t d) {
            return number(layer.dy, r * out + d) * number(layer.w, (e * out + d) * in + i);
          },
          "dx");
      sampled(
          layer.dw, at, rows,
          [&](std::int64_t d) {
            return number(layer.dy, (begin + d) * out + o) * number(layer.x, (begin + d) * in + i);
          },
          "dw");
      if (this->HasFatalFailure()) return;
    }
  }
}

/// Ranks that have parts of every group's rows, with offsets of their own: rows are those of the whole, and
/// gradients of weights and biases add up to its.
TEST(GroupedParts, GiveWhatTheWholeGives) {
  constexpr std::int64_t in = 6, out = 4;
  Layer<double, double> whole(in, out, {3, 0, 4}, 0);
  whole.run(widened, false);
  std::vector<double> dw(whole.dw.size()), db(whole.db.size());
  for (const std::vector<int>& rows : {std::vector<int>{0, 3, 4, 5}, {1, 2, 6}}) {
    const bool first = rows.size() == 4;
    Layer<double, double> part(in, out, first ? std::vector{1, 0, 3} : std::vector{2, 0, 1}, 0);
    const auto take = [&](auto& to, const auto& from, std::int64_t width) {
      for (std::size_t i = 0; i < rows.size(); ++i)
        std::copy_n(from.begin() + rows[i] * width, width, to.begin() + static_cast<std::int64_t>(i) * width);
      return to;
    };
    take(part.x, whole.x, in);
    take(part.dy, whole.dy, out);
    part.run(widened, false);
    auto y = part.y, dx = part.dx;
    expect_close(part.y, doubles(take(y, whole.y, out)), 1e-13, "y");
    expect_close(part.dx, doubles(take(dx, whole.dx, in)), 1e-13, "dx");
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += part.dw[i];
    for (std::size_t i = 0; i < db.size(); ++i) db[i] += part.db[i];
  }
  expect_close(whole.dw, dw, 1e-13, "dw");
  expect_close(whole.db, db, 1e-13, "db");
}

}  // namespace
}  // namespace ztrain::kernels::kernels_grouped_test
