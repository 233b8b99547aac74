// What threads of a GPU hold in registers: packs of elements, random words, windows of exact sums.

#include "kernels/launch/pack.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "base/philox.hpp"
#include "kernels/elementwise/random_words.hpp"
#include "kernels/step/exact_window.hpp"

namespace ztrain::kernels::kernels_pack_test {
namespace {

template <class T, std::int64_t size>
void check_pack() {
  std::vector<T> from(48), to;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(static_cast<float>(i + 1));
  for (std::size_t shift = 0; shift < 17; ++shift)
    for (std::int64_t n = -1; n <= size; ++n) {
      Pack<T, size> pack;
      pack.load(from.data() + shift, n);
      for (std::int64_t i = 0; i < size; ++i) {
        const float expected = i < n ? static_cast<float>(from[shift + static_cast<std::size_t>(i)]) : 0;
        ASSERT_EQ(static_cast<float>(pack.at[i]), expected) << shift << " " << n;
      }
      to.assign(from.size(), static_cast<T>(0.0f));
      pack.store(to.data() + shift, n);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= shift && static_cast<std::int64_t>(i - shift) < n;
        ASSERT_EQ(static_cast<float>(to[i]), inside ? static_cast<float>(from[i]) : 0) << shift << " " << n;
      }
    }
}

TEST(Pack, MovesItsElementsAtAnyAddressAndNoOthers) {
  check_pack<bf16, 8>();
  check_pack<bf16, 4>();
  check_pack<f16, 2>();
  check_pack<float, 4>();
  check_pack<float, 8>();
  check_pack<double, 2>();
  check_pack<double, 8>();
  check_pack<char, 16>();
}

TEST(Pack, IsSixteenBytesOfTheWidestType) {
  EXPECT_EQ(pack_of<bf16>, 8);
  EXPECT_EQ(pack_of<float>, 4);
  EXPECT_EQ((pack_of<bf16, float>), 4);
  EXPECT_EQ((pack_of<double, f16>), 2);
}

TEST(RandomWords, AreThoseOfTheGeneratorFromAnyElementOn) {
  for (std::uint64_t first = 100; first < 108; ++first)
    for (const std::int64_t n : {1, 4, 7, 8, 256}) {
      std::uint32_t words[256];
      draw_words(5, 6, first, n, words);
      for (std::int64_t j = 0; j < n; ++j) {
        const std::uint64_t i = first + static_cast<std::uint64_t>(j);
        ASSERT_EQ(words[j], philox(5, 6, i / 4)[i % 4]) << first << " " << j;
      }
    }
}

TEST(RandomWords, OfManyBlocksAtOnceCarryIntoTheUpperHalf) {
  constexpr std::uint64_t key = (std::uint64_t{3} << 32) + 5, high = (std::uint64_t{6} << 40) + 7;
  constexpr std::int64_t blocks = 2 * word_lanes;
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 5, std::uint64_t{9} << 33}) {
    std::uint32_t words[4 * blocks];
    draw_blocks(key, high, first, blocks, words);
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t w = 0; w < 4; ++w)
        ASSERT_EQ(words[4 * b + w],
                  philox(key, high, first + static_cast<std::uint64_t>(b))[static_cast<std::size_t>(w)])
            << first << " " << b << " " << w;
  }
}

/// Adds what a window spills, as threads do to a sum in memory.
struct SpillToSum {
  ExactSum* sum;
  void operator()(int limb, std::int64_t value) const {
    ASSERT_NE(value, 0);
    if (limb == ExactSum::limbs)
      sum->not_finite = 1;
    else
      sum->limb[limb] += value;
  }
};

void expect_exact(const std::vector<double>& terms) {
  ExactSum expected, sum;
  for (const double term : terms) expected.add(term);
  ExactWindow window;
  for (const double term : terms) window.add(term, SpillToSum{&sum});
  window.flush(SpillToSum{&sum});
  window.flush(SpillToSum{&sum});
  expected.carry();
  sum.carry();
  EXPECT_EQ(std::memcmp(&expected, &sum, sizeof sum), 0);
}

TEST(ExactWindow, AddsWhatAnExactSumAdds) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  expect_exact({});
  expect_exact({0, 0});
  expect_exact({1, 2, 3e-300, 1e300, 0, 5e-324, 1, 1.7976931348623157e308, 2});
  expect_exact({1, infinite, 2});
  expect_exact({std::numeric_limits<double>::quiet_NaN()});
  for (const int spread : {1, 20, 60, 300, 2000}) {
    std::vector<double> terms;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const PhiloxBlock bits = philox(1, 2, i);
      terms.push_back(std::ldexp(uniform(bits[0]),
                                 static_cast<int>(bits[1] % static_cast<unsigned>(spread)) - spread / 2));
    }
    expect_exact(terms);
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_pack_test
