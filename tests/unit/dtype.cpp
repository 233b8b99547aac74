// The 16-bit float types: every value, and rounding against float64 arithmetic.

#include "base/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ztrain {
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

TEST(DTypes, FollowTheirCppTypes) {
  EXPECT_EQ(dtype_of<f16>(), DType::f16);
  EXPECT_EQ(dtype_of<bf16>(), DType::bf16);
  EXPECT_EQ(size_of(DType::f16), static_cast<std::int64_t>(sizeof(f16)));
  EXPECT_EQ(dtype_from("fp16"), DType::f16);
}

}  // namespace
}  // namespace ztrain
