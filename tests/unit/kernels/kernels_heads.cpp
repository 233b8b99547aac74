// Heads that are put together from columns of others, and what moves back, against the reference.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "kernels/heads/head_parts.hpp"
#include "kernels/heads/record.hpp"
#include "kernels/heads/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_heads_test {
namespace {

using namespace ztrain::test;

/// Columns of a head of each operand.
struct Widths {
  std::vector<std::int64_t> in, out;
};

/// Keys and values of 3 and 2 parts of a head, and what moves their gradients back, with gaps at all places.
const HeadParts expanded{3, {{0, 0, 0, 2, 19}, {1, 1, 0, 21, 70}, {0, 21, 1, 0, 12}}, true, false};
const HeadParts collapsed{3, {{0, 2, 0, 0, 19}, {0, 21, 1, 1, 70}, {1, 0, 0, 21, 12}}, false, true};
const Widths wide{{35, 72}, {93, 20}}, narrow{{93, 20}, {35, 72}};

template <class T>
class Heads : public ::testing::Test {
 protected:
  void expect_moved(const HeadParts& parts, const Widths& widths) {
    const std::int64_t rows = 5, heads = parts.heads;
    std::vector<Array<T>> x;
    std::vector<reference::HeadMatrix> in, out;
    HeadInputs<T> inputs;
    std::array<std::int64_t, 2> input_widths{};
    for (std::size_t i = 0; i < widths.in.size(); ++i) {
      const bool shared = parts.shared_input && i == 1;
      const std::int64_t row = widths.in[i] * (shared ? 1 : heads);
      x.push_back(random<T>(rows * row, i + 1));
      inputs.at[i] = {x[i].data(), row, shared ? 0 : widths.in[i]};
      input_widths[i] = widths.in[i];
      in.push_back({doubles(x[i]), widths.in[i], shared});
    }
    std::vector<Array<T>> y;
    for (std::size_t i = 0; i < widths.out.size(); ++i) {
      const bool sum = parts.shared_output && i == 1;
      const auto size = static_cast<std::size_t>(rows * widths.out[i] * (sum ? 1 : heads));
      y.push_back(random<T>(static_cast<std::int64_t>(size), 9));  // every element is written
      out.push_back({std::vector<double>(size), widths.out[i], sum});
      const HeadLayout layout = head_layout(parts, static_cast<std::int64_t>(i), widths.out[i], input_widths);
      (sum ? head_parts_sum<T> : head_parts<T>)(*exec_, inputs, layout, heads, matrix(y[i], rows));
    }
    reference::head_parts(parts, rows, in, out);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool sum = parts.shared_output && i == 1;
      expect_close(y[i], out[i].values, sum && !std::is_same_v<T, double> ? 1e-6 : sum ? 1e-14 : 0, "output");
    }
  }

  TestExec exec_;
};
TYPED_TEST_SUITE(Heads, FloatTypes);

TYPED_TEST(Heads, MoveForwardAndBack) {
  this->expect_moved(expanded, wide);
  this->expect_moved(collapsed, narrow);
  this->expect_moved({1, {{0, 0, 0, 0, 512}, {0, 512, 1, 0, 64}}}, {{576}, {512, 64}});
  this->expect_moved({4, {{0, 0, 0, 0, 128}}}, {{192}, {128}});
}

TEST(HeadLayouts, AreRefusedIfMovesOverlapOrLeaveTheirOperands) {
  const std::array<std::int64_t, 2> widths{8, 4};
  const auto refuses = [&](std::vector<HeadMove> moves) {
    EXPECT_THROW(head_layout(HeadParts{2, std::move(moves)}, 0, 10, widths), Error);
  };
  EXPECT_EQ(head_layout(HeadParts{2, {{1, 0, 0, 5, 4}, {0, 3, 0, 1, 4}}}, 0, 10, widths).count, 4);
  refuses({{0, 0, 0, 0, 4}, {0, 4, 0, 3, 4}});
  refuses({{0, 0, 0, 3, 8}});
  refuses({{1, 1, 0, 0, 4}});
  refuses({{2, 0, 0, 0, 4}});
}

}  // namespace
}  // namespace ztrain::kernels::kernels_heads_test
