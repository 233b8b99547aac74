#pragma once
// 8-bit codes for numbers in [-1, 1] that span seven decades: the dynamic tree map of Dettmers et al., "8-bit
// optimizers via block-wise quantization" (ICLR 2022). The position of a code's leading one is the decimal
// exponent, the bits after it are a linear fraction: decade i of 7 has fractions at the centres of 2^i
// (signed) or 2^(i+1) (unsigned) equal parts of [0.1, 1], times 10^(i-6). Code 0 is 0 and the largest code is
// 1, so that all-zero bytes are zeros and a block's largest element is kept exactly.
//
// Signed codes are a sign (bit 7) and a magnitude (bits 0 to 6). The paper's map has 127 magnitudes and 1.0
// on the positive side alone; here the last fraction of the last decade is moved to 1 on both sides.
//
// Coding is to the nearest value (a tie: to the smaller), but a positive number never gets the unsigned code
// 0: a second moment that vanished while its first moment did not would make a step of m / eps.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ztrain::optim {

/// `size` magnitudes in rising order, and the tables that find the one nearest to a number in [0, 1].
template <std::size_t size>
struct CodeMap {
  /// Numbers are found by their exponent and the upper seven bits of the mantissa, down to 2^-22; smaller
  /// numbers are in cell 0. A cell holds at most one threshold.
  static constexpr std::int32_t first_cell = std::bit_cast<std::uint32_t>(0x1p-22f) >> 16;
  static constexpr std::int32_t cells = (std::bit_cast<std::uint32_t>(1.0f) >> 16) - first_cell + 1;

  std::array<float, size> value{};
  std::array<float, size> threshold{};       ///< a number above it is nearer to the next code
  std::array<std::uint8_t, cells> lowest{};  ///< code of the smallest number in a cell

  /// Returns the cell of a magnitude >= 0. Magnitudes above 1, infinity and NaN are in the last cell.
  static constexpr std::int32_t cell(float magnitude) {
    const std::int32_t c =
        static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(magnitude) >> 16) - first_cell;
    const std::int32_t low = c < 0 ? 0 : c;
    return low < cells ? low : cells - 1;
  }
  constexpr std::uint8_t nearest_in(std::int32_t c, float magnitude) const {
    const std::uint8_t code = lowest[static_cast<std::size_t>(c)];
    return static_cast<std::uint8_t>(code + (magnitude > threshold[code]));
  }
};

/// Returns the map of decades 10^-6 to 10^0, of which decade i has first << i fractions. If the fractions
/// fill `size` codes, the last one is moved to 1; if they end one code short, 1 is added. With keep_positive,
/// no number above 0 gets code 0.
template <std::size_t size>
constexpr CodeMap<size> dynamic_map(std::size_t first, bool keep_positive) {
  CodeMap<size> map;
  std::size_t code = 1;
  double scale = 1e-6;
  for (std::size_t parts = first; parts <= first << 6; parts *= 2, scale *= 10)
    for (std::size_t f = 0; f < parts; ++f)
      map.value[code++] = static_cast<float>(
          scale * (0.1 + 0.9 * (static_cast<double>(f) + 0.5) / static_cast<double>(parts)));
  map.value[size - 1] = 1;
  for (std::size_t c = 0; c + 1 < size; ++c)
    map.threshold[c] = static_cast<float>((double{map.value[c]} + double{map.value[c + 1]}) / 2);
  map.threshold[size - 1] = std::numeric_limits<float>::infinity();  // no code is above the last one
  if (keep_positive) map.threshold[0] = 0;
  std::size_t low = 0;
  for (std::int32_t cell = 1; cell < map.cells; ++cell) {
    const auto bits = static_cast<std::uint32_t>(map.first_cell + cell) << 16;
    while (std::bit_cast<float>(bits) > map.threshold[low]) ++low;
    map.lowest[static_cast<std::size_t>(cell)] = static_cast<std::uint8_t>(low);
  }
  return map;
}

inline constexpr CodeMap<128> signed_magnitudes = dynamic_map<128>(1, false);
inline constexpr CodeMap<256> unsigned_magnitudes = dynamic_map<256>(2, true);

/// Returns whether no cell holds two thresholds, so that one comparison ends the search.
template <std::size_t size>
constexpr bool cells_suffice(const CodeMap<size>& map) {
  for (std::size_t cell = 0; cell + 1 < map.lowest.size(); ++cell)
    if (map.lowest[cell + 1] > map.lowest[cell] + 1) return false;
  return true;
}
static_assert(cells_suffice(signed_magnitudes) && cells_suffice(unsigned_magnitudes));

/// Codes of numbers of either sign, for first moments.
struct SignedCode {
  using Map = CodeMap<128>;
  static constexpr const Map& map = signed_magnitudes;
  static constexpr std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::size_t c = 0; c < 128; ++c) {
      all[c] = map.value[c];
      all[c + 128] = -map.value[c];
    }
    return all;
  }();

  static constexpr float magnitude(float number) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) & 0x7fffffffu);
  }
  /// Zero has one code, without a sign.
  static constexpr std::uint8_t with_sign(std::uint8_t code, float number) {
    return static_cast<std::uint8_t>(code == 0 ? 0u : code | std::bit_cast<std::uint32_t>(number) >> 31 << 7);
  }
  static constexpr float decode(std::uint8_t code) { return values[code]; }
  /// Decodes with a copy of the map, for kernels that cannot address the program's constants.
  static constexpr float decode(const Map& copy, std::uint8_t code) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(copy.value[code & 127u]) | (code & 128u) << 24);
  }
};

/// Codes of numbers >= 0, for second moments.
struct UnsignedCode {
  using Map = CodeMap<256>;
  static constexpr const Map& map = unsigned_magnitudes;

  static constexpr float magnitude(float number) { return number; }
  static constexpr std::uint8_t with_sign(std::uint8_t code, float) { return code; }
  static constexpr float decode(std::uint8_t code) { return map.value[code]; }
  static constexpr float decode(const Map& copy, std::uint8_t code) { return copy.value[code]; }
};

/// Returns the code of a number in [-1, 1], or in [0, 1] for unsigned codes.
template <class Codec>
constexpr std::uint8_t encode(float number) {
  const float magnitude = Codec::magnitude(number);
  return Codec::with_sign(Codec::map.nearest_in(Codec::map.cell(magnitude), magnitude), number);
}

}  // namespace ztrain::optim
