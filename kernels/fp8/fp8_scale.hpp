#pragma once
// How 8-bit floats are scaled: value = code * scale. Included by kernel sources only.
//
// A scale is the least power of two with which the largest magnitude fits the codes: the division by it is
// exact, so that codes are the same on every processor, at the cost of at most one of the format's binades
// (torchao does the same for scales per row, "round_scales_to_power_of_2"). Magnitudes are compared as bit
// patterns, whose order is theirs with NaN on top: their maximum depends on no order, and what is not finite
// makes the scale NaN, so that an overflow is seen in the gradient's norm rather than saturated.

#include <fp8_convert.hpp>  // of for_cpu or for_cuda

#include <bit>
#include <cstdint>

#include "base/dtype.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// The bits of |value| in fp32.
KOKKOS_INLINE_FUNCTION std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

/// The exponent k of the largest code, which is 1.75 * 2^k in both formats.
template <class Code>
inline constexpr int largest_exponent = 0;
template <>
inline constexpr int largest_exponent<f8e4m3> = 8;
template <>
inline constexpr int largest_exponent<f8e5m2> = 15;

/// The scale for numbers of at most this magnitude; 1 for zero, NaN for what is not finite. At least 2^-100,
/// so that it has an inverse.
template <class Code>
KOKKOS_INLINE_FUNCTION float fp8_scale(std::uint32_t largest) {
  if (largest == 0) return 1.0F;
  if (largest >= 0x7f800000u) return std::bit_cast<float>(0x7fc00000u);
  const int beyond = (largest & 0x7fffffu) > 0x600000u ? 1 : 0;
  const int exponent = static_cast<int>(largest >> 23) - largest_exponent<Code> + beyond;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent < 27 ? 27 : exponent) << 23);
}

/// 1 / scale, of a power of two.
KOKKOS_INLINE_FUNCTION float inverse_scale(float scale) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<std::uint32_t>(scale));
}

/// Elements that a GPU thread loads at once, from a multiple of 16 bytes. Widths are multiples of 16, so
/// every piece is whole.
template <class T>
struct alignas(16) Packed {
  T at[pack];
};

/// The largest magnitude of n elements.
KOKKOS_INLINE_FUNCTION std::uint32_t largest_of(const bf16* __restrict x, std::int64_t n) {
  if constexpr (on_gpu) {
    const auto values = *reinterpret_cast<const Packed<bf16>*>(x);
    unsigned largest = 0;
    for (std::int64_t i = 0; i < pack; ++i) {
      const unsigned bits = values.at[i].bits & 0x7fffu;
      largest = bits > largest ? bits : largest;
    }
    return largest << 16;
  } else {
    std::uint16_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto bits = static_cast<std::uint16_t>(x[i].bits & 0x7fffu);
      largest = bits > largest ? bits : largest;
    }
    return static_cast<std::uint32_t>(largest) << 16;
  }
}

/// The same of n magnitudes that were found before.
KOKKOS_INLINE_FUNCTION std::uint32_t largest_of(const float* __restrict magnitudes, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = magnitude_bits(magnitudes[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// The lanes of a row find the largest magnitude of n elements, or of what was found before.
template <class L, class V>
KOKKOS_INLINE_FUNCTION void find_largest(const L& lanes, const V* from, std::int64_t n, float* largest) {
  const auto bits = lanes.template maximum<std::uint32_t>(
      n, 0, [=](std::int64_t begin, std::int64_t count) { return largest_of(from + begin, count); });
  lanes.once([&] { *largest = std::bit_cast<float>(bits); });
}

/// A pack of codes, stored at once.
struct alignas(pack) PackedCodes {
  std::uint32_t low, high;
};
template <class Code>
KOKKOS_INLINE_FUNCTION PackedCodes packed_codes(const float (&v)[pack]) {
  return {four_codes<Code>(v[0], v[1], v[2], v[3]), four_codes<Code>(v[4], v[5], v[6], v[7])};
}

/// The codes of a pack of x * factor.
template <class Code>
KOKKOS_INLINE_FUNCTION PackedCodes codes_of_pack(const bf16* x, float factor) {
  const auto values = *reinterpret_cast<const Packed<bf16>*>(x);
  float scaled[pack];
  for (std::int64_t i = 0; i < pack; ++i) scaled[i] = load(values.at[i]) * factor;
  return packed_codes<Code>(scaled);
}

/// n codes of x * factor.
template <class Code>
KOKKOS_INLINE_FUNCTION void encode(const bf16* __restrict x, float factor, Code* __restrict codes,
                                   std::int64_t n) {
  if constexpr (on_gpu) {
    *reinterpret_cast<PackedCodes*>(codes) = codes_of_pack<Code>(x, factor);
  } else {
    for (std::int64_t i = 0; i < n; ++i) codes[i] = Code(load(x[i]) * factor);
  }
}

}  // namespace ztrain::kernels
