#include "checkpoint/format/convert.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.hpp"

namespace ztrain::checkpoint {
namespace {

template <class... Types>
struct TypeList {};

/// Types that convert to each other. A new one only needs its name here.
using Convertible = TypeList<float, bf16, f16, double>;

template <class From, class To>
void convert_elements(const std::byte* from, std::byte* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, from + i * static_cast<std::int64_t>(sizeof in), sizeof in);
    const To out(static_cast<float>(in));
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof out), &out, sizeof out);
  }
}

/// Returns whether a number is neither NaN nor infinite, which have all bits of the exponent set. Works on
/// the bits, without a branch, because it runs over every byte that is read.
template <class Bits, Bits exponent>
bool finite_bits(const std::byte* data, std::int64_t count) {
  Bits found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits element;
    std::memcpy(&element, data + i * static_cast<std::int64_t>(sizeof element), sizeof element);
    found |= static_cast<Bits>((element & exponent) == exponent);
  }
  return found == 0;
}

template <class T>
bool finite_elements(const std::byte* data, std::int64_t count) {
  if constexpr (std::is_same_v<T, double>)
    return finite_bits<std::uint64_t, 0x7ff0'0000'0000'0000>(data, count);
  if constexpr (std::is_same_v<T, float>) return finite_bits<std::uint32_t, 0x7f80'0000>(data, count);
  if constexpr (std::is_same_v<T, bf16>) return finite_bits<std::uint16_t, 0x7f80>(data, count);
  return finite_bits<std::uint16_t, 0x7c00>(data, count);
}

using Converter = void (*)(const std::byte* from, std::byte* to, std::int64_t count);

template <class From, class... To>
Converter converter_to(TypeList<To...>, DType to) {
  Converter found = nullptr;
  ((to == dtype_of<To>() ? void(found = convert_elements<From, To>) : void()), ...);
  return found;
}

template <class... From>
Converter converter(TypeList<From...> types, DType from, DType to) {
  Converter found = nullptr;
  ((from == dtype_of<From>() ? void(found = converter_to<From>(types, to)) : void()), ...);
  return found;
}

}  // namespace

bool converts(DType from, DType to) {
  return from == to || converter(Convertible{}, from, to) != nullptr;
}

bool all_finite(const std::byte* data, DType dtype, std::int64_t count) {
  bool finite = true;
  [&]<class... T>(TypeList<T...>) {
    ((dtype == dtype_of<T>() ? void(finite = finite_elements<T>(data, count)) : void()), ...);
  }(Convertible{});
  return finite;
}

void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count) {
  // Copies the bits, because a conversion would change some NaNs.
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * size_of(to_type)));
    return;
  }
  const Converter convert_all = converter(Convertible{}, from_type, to_type);
  REQUIRE(convert_all != nullptr, "{} does not convert to {}", name_of(from_type), name_of(to_type));
  convert_all(from, to, count);
}

void decode_mxfp4(const std::byte* codes, const std::byte* scales, std::int64_t begin, std::int64_t count,
                  float* to) {
  // A sign and then 2 bits of exponent and 1 of fraction.
  constexpr std::array<float, 16> values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  constexpr int bias = 127, not_a_number = 255;
  const std::int64_t first = begin % mxfp4_block;
  for (std::int64_t i = first, end = first; i < first + count; i = end) {
    end = std::min(first + count, (i / mxfp4_block + 1) * mxfp4_block);
    const int exponent = std::to_integer<int>(scales[i / mxfp4_block]);
    const float scale = exponent == not_a_number ? std::numeric_limits<float>::quiet_NaN()
                                                 : std::ldexp(1.0F, exponent - bias);
    for (std::int64_t e = i; e < end; ++e) {
      const auto code = std::to_integer<unsigned>(codes[e / 2]) >> (e % 2 * 4) & 0xfU;
      to[e - first] = values[code] * scale;
    }
  }
}

}  // namespace ztrain::checkpoint
