#pragma once
// Defines element types and the range of fp32. bf16, fp16 and the 8-bit floats are plain storage types of our
// own, usable in any kernel and on any compiler.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace ztrain {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8, f8e4m3, f8e5m2 };

/// Returns the bytes of one element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return 1;
  }
  return 0;
}

/// Returns the name used in decks, logs and checkpoints: "fp64", "fp32", "bf16", "fp16", "int64", "int32",
/// "uint8", "fp8_e4m3", "fp8_e5m2".
std::string_view name_of(DType type);

/// Returns the type of a name. Throws Error naming the legal values.
DType dtype_from(std::string_view name);

/// bfloat16: the upper half of an fp32. Conversion rounds to nearest even and keeps NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  constexpr explicit bf16(float value) : bits(round(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static constexpr std::uint16_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto rounded = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    return (u & 0x7fffffffu) > 0x7f800000u ? static_cast<std::uint16_t>((u >> 16) | 0x40u) : rounded;
  }
};
static_assert(sizeof(bf16) == 2);

/// IEEE half precision: sign, 5 bits of exponent, 10 of fraction; up to 65504, 2^-24 apart at 0. Conversion
/// rounds to nearest even, to infinity from 65520 on, and keeps NaN. Every path is computed and one selected,
/// so that loops of conversions vectorise.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  constexpr explicit f16(float value) : bits(round(value)) {}
  constexpr operator float() const {
    const std::uint32_t shifted = (bits & 0x7fffu) << 13, exponent = shifted & (0x1fu << 23);
    const std::uint32_t normal = shifted + (exponent == 0x1fu << 23 ? 224u << 23 : 112u << 23);
    // Numbers below 2^-14 have no leading 1: adds one, then subtracts what it stands for.
    const float subnormal = std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f;
    const std::uint32_t magnitude = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(magnitude | (bits & 0x8000u) << 16);
  }

  static constexpr std::uint16_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // fp32 numbers from 0.5 to 1 have the subnormals' unit 2^-24, so the addition rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(sum) - (126u << 23);
    const std::uint32_t beyond = magnitude > 255u << 23 ? 0x7e00u : 0x7c00u;
    const std::uint32_t finite = magnitude < 113u << 23 ? subnormal : normal;
    return static_cast<std::uint16_t>((magnitude < 143u << 23 ? finite : beyond) | (u >> 16 & 0x8000u));
  }
};
static_assert(sizeof(f16) == 2);

/// The 8-bit floats of the Open Compute Project's OFP8 specification (Micikevicius et al., "FP8 formats for
/// deep learning", 2022): sign, exponent, `fraction` bits. Conversion rounds to nearest even, what is beyond
/// the largest finite value (infinities as well) to that, and keeps NaN. Every path is computed and one
/// selected. least: the exponent of an fp32 that has the value of the smallest normal number. most, largest:
/// the bits of the largest finite value, in fp32 and here.
template <int fraction, std::uint32_t least, std::uint32_t most, std::uint8_t largest>
struct Float8 {
  std::uint8_t bits;

  Float8() = default;
  constexpr explicit Float8(float value) : bits(round(value)) {}
  constexpr operator float() const {
    const std::uint32_t magnitude = bits & 0x7fu;
    const std::uint32_t shifted = magnitude << shift;
    // Numbers below the normal ones have no leading 1: adds one, then subtracts what it stands for.
    const float subnormal = std::bit_cast<float>(shifted + (least << 23)) - std::bit_cast<float>(least << 23);
    const std::uint32_t finite =
        magnitude < 1u << fraction ? std::bit_cast<std::uint32_t>(subnormal) : shifted + ((least - 1) << 23);
    // After its largest value e4m3 has only NaN; e5m2 has infinity and then NaN.
    const std::uint32_t beyond = fraction == 2 && magnitude == 0x7cu ? 0x7f800000u : 0x7fc00000u;
    return std::bit_cast<float>((magnitude <= largest ? finite : beyond) | (bits & 0x80u) << 24);
  }

  static constexpr std::uint8_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    const std::uint32_t normal =
        (magnitude - ((least - 1) << 23) + ((1u << (shift - 1)) - 1) + ((magnitude >> shift) & 1u)) >> shift;
    // Adds a number whose unit in the last place is that of the subnormals, so the addition rounds.
    constexpr std::uint32_t unit = (least + 23 - fraction) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(unit);
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(sum) - unit;
    const std::uint32_t finite = magnitude < least << 23 ? subnormal : normal;
    const std::uint32_t beyond = magnitude > 0x7f800000u ? 0x7fu : largest;
    return static_cast<std::uint8_t>((magnitude <= most ? finite : beyond) | (u >> 24 & 0x80u));
  }

 private:
  static constexpr int shift = 23 - fraction;
};

/// 4 bits of exponent, 3 of fraction: up to 448, 2^-9 apart at 0; no infinity.
using f8e4m3 = Float8<3, 121, 0x43e00000u, 0x7e>;
/// 5 bits of exponent, 2 of fraction: up to 57344, 2^-16 apart at 0; IEEE half precision's upper byte.
using f8e5m2 = Float8<2, 113, 0x47600000u, 0x7b>;
static_assert(sizeof(f8e4m3) == 1 && sizeof(f8e5m2) == 1);

/// Returns whether the type is one of the 8-bit floats.
constexpr bool is_fp8(DType type) {
  return type == DType::f8e4m3 || type == DType::f8e5m2;
}

/// Type in which a kernel sums elements of T: fp32 for bf16, fp16 and fp32; fp64 for fp64.
template <class T>
struct Accumulator {
  using type = float;
};
template <>
struct Accumulator<double> {
  using type = double;
};
template <class T>
using acc_t = typename Accumulator<T>::type;

/// Returns the DType of a C++ element type.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<f8e4m3>() {
  return DType::f8e4m3;
}
template <>
constexpr DType dtype_of<f8e5m2>() {
  return DType::f8e5m2;
}

constexpr double least_fp32 = std::numeric_limits<float>::min();  ///< a smaller number may become 0
constexpr double most_fp32 = std::numeric_limits<float>::max();

/// Returns whether x is 0 or within the range of fp32's normal numbers, and so neither NaN nor infinite.
inline bool fits_fp32(double x) {
  return x == 0 || (std::abs(x) >= least_fp32 && std::abs(x) <= most_fp32);
}

}  // namespace ztrain
