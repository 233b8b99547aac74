// What blockwise attention is built from: products and transpositions of tiles, powers and logarithms.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/tile.hpp"

namespace ztrain::kernels::kernels_tile_test {
namespace {

constexpr int side = 64;

template <class T>
struct Tiles {
  alignas(64) T a[side * side], b[side * side], c[side * side];

  Tiles() {
    for (int i = 0; i < side * side; ++i) {
      a[i] = static_cast<T>(i * 37 % 101 - 50) / 64;
      b[i] = static_cast<T>(i * 53 % 97 - 48) / 64;
      c[i] = static_cast<T>(i % 7);
    }
  }
};

template <class T>
struct Tile : ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Tile, Types);

/// Every number of rows, so that every way of cutting them into strips is met; sums of these numbers are
/// exact.
TYPED_TEST(Tile, ProductsOfAllHeights) {
  using T = TypeParam;
  for (int rows = 1; rows <= side; ++rows)
    for (const int cols : {16, 48, 64})
      for (const bool transposed : {false, true}) {
        const Tiles<T> before;
        Tiles<T> t;
        const std::int64_t a_row = transposed ? 1 : side, a_depth = transposed ? side : 1;
        tile::product<T, true>(rows, cols, 21, t.a, a_row, a_depth, t.b, side, t.c, side);
        for (int i = 0; i < side; ++i)
          for (int j = 0; j < side; ++j) {
            T sum = before.c[i * side + j];
            if (i < rows && j < cols)
              for (int d = 0; d < 21; ++d) sum += t.a[i * a_row + d * a_depth] * t.b[d * side + j];
            const bool padding = i >= rows && i < tile::padded(rows, tile::row_quantum) && j < cols;
            if (padding) continue;
            ASSERT_EQ(t.c[i * side + j], sum) << rows << " x " << cols << " at " << i << ", " << j;
          }
      }
}

/// Strips of rows whose columns and depth differ, as those of masked blocks do.
TYPED_TEST(Tile, ProductsOfParts) {
  using T = TypeParam;
  for (const int rows : {4, 7, 30, 64}) {
    Tiles<T> t;
    int first[side], after[side], begin[side], covered = 0;
    tile::product_within<T, false>(rows, tile::Product<T>{t.a, side, 1, t.b, side, t.c, side},
                                   [&](int i, int n) {
                                     EXPECT_EQ(i, covered);
                                     covered = i + n;
                                     for (int k = i; k < std::min(side, i + n); ++k) {
                                       begin[k] = i / 16 * 16;
                                       first[k] = i / 2;
                                       after[k] = std::min(side, i + n);
                                     }
                                     return tile::Part{{i / 16 * 16, side}, {i / 2, std::min(side, i + n)}};
                                   });
    EXPECT_EQ(covered, tile::padded(rows, tile::row_quantum));
    for (int i = 0; i < rows; ++i)
      for (int j = begin[i]; j < side; ++j) {
        T sum = 0;
        for (int d = first[i]; d < after[i]; ++d) sum += t.a[i * side + d] * t.b[d * side + j];
        ASSERT_EQ(t.c[i * side + j], sum) << rows << " rows, at " << i << ", " << j;
      }
  }
}

TYPED_TEST(Tile, Transposes) {
  using T = TypeParam;
  for (const int cols : {1, 7, 8, 20, 40, 64}) {
    Tiles<T> t;
    tile::transpose(t.a, side, side, cols, T(2), t.c, side);
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < cols; ++j)
        ASSERT_EQ(t.c[j * side + i], 2 * t.a[i * side + j]) << cols << " columns, at " << i << ", " << j;
  }
}

TEST(FastExp2, Accurate) {
  double worst = 0;
  for (float x = -126.0f; x <= 127.0f; x += 0.00173f)
    worst =
        std::max(worst, std::abs(static_cast<double>(fast_exp2(x)) / std::exp2(static_cast<double>(x)) - 1));
  EXPECT_LT(worst, 1.5e-7);
  EXPECT_EQ(fast_exp2(0.0f), 1.0f);
  EXPECT_EQ(fast_exp2(-20.0f), 0x1p-20f);
}

TEST(FastExp2, Ends) {
  EXPECT_EQ(fast_exp2(-126.5f), 0.0f);
  EXPECT_EQ(fast_exp2(-2e30f), 0.0f);
  EXPECT_EQ(fast_exp2(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(fast_exp2(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastLog, Accurate) {
  double worst = 0;
  for (double x = 1e-30; x < 1e30; x *= 1.0017) {
    const auto rounded = static_cast<float>(x);
    const double exact = std::log(static_cast<double>(rounded));
    worst = std::max(worst, std::abs(static_cast<double>(fast_log(rounded)) - exact) / (1 + std::abs(exact)));
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(fast_log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(fast_log(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_tile_test
