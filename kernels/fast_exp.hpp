#pragma once
// exp from plain arithmetic, so that a loop over it vectorises.

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/function.hpp"

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

ZTRAIN_FUNCTION double fast_exp(double x) {
  return std::exp(x);
}

}  // namespace ztrain::kernels
