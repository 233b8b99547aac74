#pragma once
// exp from plain arithmetic, so that a loop over it vectorises.

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/function.hpp"

#ifdef __ASSOCIATIVE_MATH__
#error \
    "A source that ends in _reduce.cpp may not use fast_exp: reordered, adding and subtracting rounds nothing."
#endif

namespace ztrain::kernels {

/// exp(x) in fp32: relative error below 2e-7 on [-86.5, 88], exactly 0 below -86.5, exp(88) above 88, NaN for
/// NaN. exp(x) = 2^n exp(r) with n the integer nearest to x / ln 2 and |r| <= ln(2)/2, where a Taylor series
/// of degree 7 is exact to half a unit in the last place.
ZTRAIN_FUNCTION float fast_exp(float x) {
  constexpr float lowest = -86.5f, highest = 88.0f;
  constexpr float inverse_ln2 = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float shifter =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
  // A NaN fails this comparison and the last one, and so reaches the result; what is below lowest is replaced
  // there.
  const float c = x > highest ? highest : x;
  const float shifted = c * inverse_ln2 + shifter;
  const float n = shifted - shifter;
  const float r = (c - n * ln2_high) - n * ln2_low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(shifter)) << 23;
  const float scaled = p * std::bit_cast<float>(exponent + 0x3f800000u);
  return x < lowest ? 0.0f : scaled;
}

/// 2^x in fp32 for x up to 127: relative error below 1.5e-7 from -126 on, exactly 0 below -126.5, 1 for 0,
/// NaN for NaN. 2^x = 2^n 2^r with n the integer nearest to x; 2^r = 1 + r p(r) on |r| <= 1/2, where the
/// relative error of p's sum is at most 2.6e-9 (Remez's exchange). Fewer operations than exp: r is exact.
ZTRAIN_FUNCTION float fast_exp2(float x) {
  constexpr float lowest = -127.0f;  // whose exponent's bits are 0, and with them the result

  // 1.5 * 2^23 + 127: adding it leaves n in the low mantissa bits with the bias of an exponent.
  constexpr float shifter = 12583039.0f;
  const float c = x < lowest ? lowest : x;
  const float shifted = c + shifter;
  const float r = c - (shifted - shifter);
  float p = 0.000155946764f;
  p = p * r + 0.00134066434f;
  p = p * r + 0.00961769279f;
  p = p * r + 0.0555031039f;
  p = p * r + 0.240226522f;
  p = p * r + 0.693147242f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

ZTRAIN_FUNCTION double fast_exp(double x) {
  return std::exp(x);
}

ZTRAIN_FUNCTION double fast_exp2(double x) {
  return std::exp2(x);
}

/// tanh(x) in fp32: relative error below 3e-7, NaN for NaN. Near zero it is an odd polynomial (Moshier's, of
/// the Cephes library), elsewhere 1 - 2 / (exp(2|x|) + 1) with the sign of x.
ZTRAIN_FUNCTION float fast_tanh(float x) {
  const float size = x < 0 ? -x : x, s2 = x * x;
  float p = -5.70498872745e-3f;
  p = p * s2 + 2.06390887954e-2f;
  p = p * s2 - 5.37397155531e-2f;
  p = p * s2 + 1.33314422036e-1f;
  p = p * s2 - 3.33332819422e-1f;
  const float near = p * s2 * x + x, far = 1 - 2 / (fast_exp(2 * size) + 1);
  return size < 0.625f ? near : x < 0 ? -far : far;
}

ZTRAIN_FUNCTION double fast_tanh(double x) {
  return std::tanh(x);
}

/// Caps x softly (Gemma 2, 2024): cap tanh(x / cap), cap > 0.
template <class A>
ZTRAIN_FUNCTION A softly_capped(A x, A cap) {
  return cap * fast_tanh(x / cap);
}
/// The derivative of softly_capped(), given its value.
template <class A>
ZTRAIN_FUNCTION A soft_cap_slope(A capped, A cap) {
  return 1 - capped / cap * (capped / cap);
}

/// ln(x) in fp32 for normal x > 0, NaN for NaN; absolute error below 2e-7 (1 + |ln x|). x = 2^n m with m from
/// sqrt(1/2) to sqrt(2), and ln m = 2 artanh(s), s = (m - 1) / (m + 1), whose series ends behind s^9.
ZTRAIN_FUNCTION float fast_log(float x) {
  constexpr std::uint32_t root_half = 0x3f3504f3u;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto n = static_cast<std::int32_t>(bits - root_half) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(n) << 23));
  const float s = (m - 1) / (m + 1), s2 = s * s;
  float p = 2.0f / 9;
  p = p * s2 + 2.0f / 7;
  p = p * s2 + 2.0f / 5;
  p = p * s2 + 2.0f / 3;
  p = p * s2 * s + 2 * s;
  const float result = static_cast<float>(n) * 0.69314718f + p;
  return x == x ? result : x;
}

ZTRAIN_FUNCTION double fast_log(double x) {
  return std::log(x);
}

/// log2(e): exp(x) = 2^(log2_e x).
inline constexpr double log2_e = 1.4426950408889634074;
inline constexpr double ln_2 = 0.6931471805599453094;

}  // namespace ztrain::kernels
