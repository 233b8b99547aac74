// The exact sum behind the gradient norm.

#include "kernel_interface/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace ztrain::exact_sum_test {
namespace {

constexpr double smallest = std::numeric_limits<double>::denorm_min();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double infinite = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}
double value_of(const std::vector<double>& terms) {
  return sum_of(terms).value();
}
bool same(ExactSum a, ExactSum b) {
  a.carry();
  b.carry();
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Mantissas of every length at exponents up to `spread` apart.
std::vector<double> random_terms(std::size_t count, int spread, unsigned seed) {
  std::mt19937_64 bits(seed);
  std::vector<double> terms(count);
  for (double& term : terms)
    term = std::ldexp(static_cast<double>(bits() >> (bits() % 53)),
                      static_cast<int>(bits() % static_cast<unsigned>(spread)) - spread / 2);
  return terms;
}

TEST(ExactSum, OfOneTermIsTheTerm) {
  for (const double x : {0.0, -0.0, smallest, 3 * smallest, 0x1p-1022, 0x1.fffffffffffffp-1023, 1.0, 1.0 / 3,
                         0x1p-340, 0x1p300, largest})
    EXPECT_EQ(value_of({x}), x);
  for (int e = -1074; e <= 1023; ++e) {
    const double x = std::ldexp(0x1.5555555555555p0, e);
    EXPECT_EQ(value_of({x}), x) << e;
    EXPECT_EQ(value_of({x, x}), 2 * x) << e;
  }
}

TEST(ExactSum, EqualsIntegerArithmetic) {
  // Multiples of 2^-20 whose sum, below 2^63 units, an integer holds exactly.
  std::mt19937_64 bits(1);
  for (int trial = 0; trial < 100; ++trial) {
    ExactSum sum;
    std::uint64_t units = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t term = bits() >> (11 + bits() % 53);
      units += term;
      sum.add(std::ldexp(static_cast<double>(term), -20));
    }
    EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(units), -20));
  }
}

TEST(ExactSum, IsNearLongDouble) {
  const std::vector<double> terms = random_terms(10000, 60, 2);
  long double sum = 0;
  for (const double term : terms) sum += term;
  const auto expected = static_cast<double>(sum);
  EXPECT_NEAR(value_of(terms), expected, 0x1p-52 * expected);
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(value_of({1, 0x1p-53}), 1);                      // a tie, to even
  EXPECT_EQ(value_of({1 + 0x1p-52, 0x1p-53}), 1 + 0x1p-51);  // a tie, to even
  EXPECT_EQ(value_of({1, 0x1p-53, smallest}), 1 + 0x1p-52);  // above the tie
  EXPECT_EQ(value_of({1, 0x1p-53, 0x1p-120}), 1 + 0x1p-52);
  EXPECT_EQ(value_of({1, 0x1p-54, 0x1p-54}), 1);
  EXPECT_EQ(value_of({1, 0x1p-54, 0x1p-54, 0x1p-54}), 1 + 0x1p-52);
  EXPECT_EQ(value_of({0x1p-1022, smallest}), 0x1p-1022 + smallest);
}

TEST(ExactSum, IsTheSameForAnyOrderAndGrouping) {
  std::vector<double> terms = random_terms(5000, 1000, 3);
  const ExactSum expected = sum_of(terms);
  std::mt19937 order(4);
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(terms.begin(), terms.end(), order);
    EXPECT_TRUE(same(sum_of(terms), expected));
    ExactSum grouped;
    for (auto at = terms.begin(); at != terms.end();) {
      const auto next = at + std::min<std::ptrdiff_t>(terms.end() - at, 1 + order() % 700);
      ExactSum part = sum_of({at, next});
      if (trial % 2 == 0) part.carry();
      grouped.add(part);
      at = next;
    }
    EXPECT_TRUE(same(grouped, expected));
    EXPECT_EQ(grouped.value(), expected.value());
  }
}

TEST(ExactSum, LosesNothingOverTheWholeRange) {
  ExactSum sum;
  sum.add(0x1p1000);
  for (int i = 0; i < 1 << 20; ++i) sum.add(smallest);
  ExactSum expected = sum_of({0x1p1000, 0x1p-1054});
  EXPECT_TRUE(same(sum, expected));
}

TEST(ExactSum, BeyondDoubleIsInfinite) {
  EXPECT_EQ(value_of({largest, largest}), infinite);
  EXPECT_EQ(value_of({largest, 0x1p970}), infinite);  // half a unit in the last place: to even
  EXPECT_EQ(value_of({largest, 0x1p969}), largest);
  EXPECT_EQ(value_of(std::vector<double>(20000, largest)), infinite);
}

TEST(ExactSum, AnyTermThatIsNotFiniteShows) {
  for (const double bad : {infinite, -infinite, std::nan("")}) {
    EXPECT_FALSE(std::isfinite(value_of({1, bad, 2})));
    ExactSum sum = sum_of({5});
    sum.add(sum_of({bad}));
    sum.carry();
    EXPECT_FALSE(std::isfinite(sum.value()));
  }
}

}  // namespace
}  // namespace ztrain::exact_sum_test
