// The 16-bit and 8-bit float types: every value, and rounding against float64 arithmetic.

#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ztrain::dtype_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The value of half-precision bits by the definition of the format.
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0x1f)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * static_cast<double>(infinity);
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

/// value rounded to nearest even, in steps of half precision.
double rounded_to_half(float value) {
  const double x = value;
  const double step = std::ldexp(1, std::max(std::ilogb(x), -14) - 10);
  const double rounded = std::nearbyint(x / step) * step;
  return std::abs(rounded) > 65504 ? std::copysign(static_cast<double>(infinity), x) : rounded;
}

TEST(Fp16, EveryValueIsReadAndRoundsToItself) {
  for (int i = 0; i < 65536; ++i) {
    f16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const double expected = half_value(half.bits);
    const float value = half;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(f16(value)))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << i;
      ASSERT_EQ(f16(value).bits, half.bits);
    }
  }
}

TEST(Fp16, RoundsToNearestEven) {
  std::mt19937 bits(1);
  for (int i = 0; i < 1 << 20; ++i) {
    // Exponents from far below the subnormals to beyond the largest value.
    const std::uint32_t u = (bits() & 0x807fffffu) | (95 + bits() % 55) << 23;
    const float value = std::bit_cast<float>(u);
    ASSERT_EQ(static_cast<double>(static_cast<float>(f16(value))), rounded_to_half(value)) << value;
  }
}

TEST(Fp16, TiesGoToEvenAndEndsAreRight) {
  const auto bits = [](float x) { return f16(x).bits; };
  EXPECT_EQ(bits(1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(bits(1 + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(bits(0x1p-25f), 0);
  EXPECT_EQ(bits(0x1.000002p-25f), 1);
  EXPECT_EQ(bits(3 * 0x1p-25f), 2);
  EXPECT_EQ(bits(0x1p-14f - 0x1p-25f), 0x0400);  // the largest subnormal is 2^-14 - 2^-24
  EXPECT_EQ(bits(65504), 0x7bff);
  EXPECT_EQ(bits(65519.99f), 0x7bff);
  EXPECT_EQ(bits(65520), 0x7c00);
  EXPECT_EQ(bits(65536), 0x7c00);
  EXPECT_EQ(bits(3e38f), 0x7c00);
  EXPECT_EQ(bits(-infinity), 0xfc00);
  EXPECT_EQ(bits(-0.0f), 0x8000);
  EXPECT_EQ(bits(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::nanf("")))));
  static_assert(f16(0.5f).bits == 0x3800 && static_cast<float>(f16(-2.0f)) == -2.0f);
}

/// The value of 8-bit codes by the definition of the formats.
double fp8_value(int bits, int fraction_bits, int bias, bool has_infinity) {
  const int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
  const int last = (1 << (7 - fraction_bits)) - 1;
  const double sign = bits & 0x80 ? -1 : 1;
  if (exponent == last && (has_infinity || fraction == (1 << fraction_bits) - 1))
    return has_infinity && fraction == 0 ? sign * static_cast<double>(infinity)
                                         : std::numeric_limits<double>::quiet_NaN();
  const int leading = exponent > 0 ? 1 << fraction_bits : 0;
  return sign * std::ldexp(leading + fraction, std::max(exponent, 1) - bias - fraction_bits);
}

struct E4m3 {
  using Type = f8e4m3;
  static constexpr int fraction = 3, bias = 7;
  static constexpr bool has_infinity = false;
  static constexpr double largest = 448;
};
struct E5m2 {
  using Type = f8e5m2;
  static constexpr int fraction = 2, bias = 15;
  static constexpr bool has_infinity = true;
  static constexpr double largest = 57344;
};

template <class Format>
struct Fp8 : testing::Test {
  static double value(int bits) {
    return fp8_value(bits, Format::fraction, Format::bias, Format::has_infinity);
  }
  static std::uint8_t code(float x) { return typename Format::Type(x).bits; }
};
using Fp8Formats = testing::Types<E4m3, E5m2>;
TYPED_TEST_SUITE(Fp8, Fp8Formats);

TYPED_TEST(Fp8, EveryCodeIsReadAndRoundsToItself) {
  for (int i = 0; i < 256; ++i) {
    typename TypeParam::Type number;
    number.bits = static_cast<std::uint8_t>(i);
    const double expected = this->value(i);
    const float read = number;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(read)) << i;
      ASSERT_TRUE(std::isnan(this->value(this->code(read)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(read), expected) << i;
    if (std::isfinite(expected)) {
      ASSERT_EQ(this->code(read), i);
    }
  }
}

/// The nearest code, and that of the even fraction where two are equally near, by looking at all.
TYPED_TEST(Fp8, RoundsToTheNearestOfAllCodes) {
  std::mt19937 bits(3);
  const auto nearest = [&](double x) {
    int best = 0;
    for (int i = 1; i < 128; ++i) {
      const double v = this->value(i), old = std::abs(this->value(best) - x);
      if (!std::isfinite(v)) continue;
      if (std::abs(v - x) < old || (std::abs(v - x) == old && i % 2 == 0)) best = i;
    }
    return best;
  };
  const auto check = [&](float x) {
    ASSERT_EQ(this->code(x), nearest(static_cast<double>(x))) << x;
    ASSERT_EQ(this->code(-x), nearest(static_cast<double>(x)) | 0x80) << x;
  };
  // Each code, the middle to the next, and the neighbours of both in fp32.
  for (int i = 0; i < 127; ++i) {
    const double a = this->value(i), b = this->value(i + 1);
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    for (const float x : {static_cast<float>(a), static_cast<float>((a + b) / 2)})
      for (const float near : {x, std::nextafter(x, infinity), std::nextafter(x, 0.0F)}) check(near);
  }
  for (int i = 0; i < 1 << 15; ++i)
    check(
        std::bit_cast<float>(static_cast<std::uint32_t>((bits() & 0x007fffffu) | (100 + bits() % 50) << 23)));
}

TYPED_TEST(Fp8, SaturatesAndKeepsNaN) {
  const auto at = [&](float x) { return this->value(this->code(x)); };
  const auto largest = static_cast<float>(TypeParam::largest);
  for (const float x : {largest, std::nextafter(largest, infinity), 2 * largest, 3e38F, infinity}) {
    EXPECT_EQ(at(x), TypeParam::largest) << x;
    EXPECT_EQ(at(-x), -TypeParam::largest) << x;
  }
  EXPECT_TRUE(std::isnan(at(std::nanf(""))));
  EXPECT_EQ(this->code(0.0F), 0);
  EXPECT_EQ(this->code(-0.0F), 0x80);
  EXPECT_EQ(this->code(std::numeric_limits<float>::denorm_min()), 0);
  static_assert(typename TypeParam::Type(1.5F) == 1.5F);
}

TEST(DTypes, FollowTheirCppTypes) {
  EXPECT_EQ(dtype_of<f16>(), DType::f16);
  EXPECT_EQ(dtype_of<bf16>(), DType::bf16);
  EXPECT_EQ(size_of(DType::f16), static_cast<std::int64_t>(sizeof(f16)));
  EXPECT_EQ(dtype_from("fp16"), DType::f16);
  EXPECT_EQ(dtype_of<f8e4m3>(), DType::f8e4m3);
  EXPECT_EQ(dtype_of<f8e5m2>(), DType::f8e5m2);
  EXPECT_EQ(size_of(DType::f8e5m2), static_cast<std::int64_t>(sizeof(f8e5m2)));
  EXPECT_EQ(dtype_from("fp8_e4m3"), DType::f8e4m3);
  EXPECT_EQ(name_of(DType::f8e5m2), "fp8_e5m2");
  EXPECT_TRUE(is_fp8(DType::f8e4m3) && is_fp8(DType::f8e5m2) && !is_fp8(DType::u8));
}

}  // namespace
}  // namespace ztrain::dtype_test
