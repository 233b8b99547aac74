#pragma once
// Random bits by logical element, and rounding with them. Included by kernel sources only.
//
// Elements are drawn for in groups of 256 of the whole parameter: 32 Philox blocks of 128 bits give each 16
// bits. Lane l of a group serves elements l, l + 32, ... l + 224 of it, low half of each word first.

#include <bit>
#include <cstdint>

#include "base/dtype.hpp"
#include "base/function.hpp"
#include "base/philox.hpp"
#include "kernels/optimizer/optimizer_step.hpp"

namespace ztrain::kernels {

/// The stream of one parameter in one step: a Philox key and half a counter.
struct RandomStream {
  std::uint64_t key, high;

  /// Initial values are drawn from (seed, stream) with counters from 0: the upper bit keeps off them.
  ZTRAIN_FUNCTION static RandomStream of_step(std::uint64_t seed, std::uint64_t stream, double step) {
    const PhiloxBlock b = philox(seed, stream, (std::uint64_t{1} << 63) | static_cast<std::uint64_t>(step));
    return {b[0] | static_cast<std::uint64_t>(b[1]) << 32, b[2] | static_cast<std::uint64_t>(b[3]) << 32};
  }
};

inline constexpr int draw_lanes = 32;
inline constexpr std::int64_t draw_group = 256;

/// Sixteen random bits for each element of a group: those of the blocks 32 group + lane.
ZTRAIN_FUNCTION void draw(const RandomStream& stream, std::int64_t group, std::uint32_t* __restrict bits) {
  std::uint32_t c[4][draw_lanes];
  philox_lanes(stream.key, stream.high, static_cast<std::uint64_t>(group) * draw_lanes, c);
  for (int w = 0; w < 4; ++w)
    for (int l = 0; l < draw_lanes; ++l) {
      bits[2 * w * draw_lanes + l] = c[w][l] & 0xffffu;
      bits[(2 * w + 1) * draw_lanes + l] = c[w][l] >> 16;
    }
}

/// Returns the random bits of one element of the parameter, as draw gives them.
ZTRAIN_FUNCTION std::uint32_t draw_one(const RandomStream& stream, std::int64_t logical) {
  const std::int64_t at = logical % draw_group, half = at / draw_lanes;
  const auto block = static_cast<std::uint64_t>(logical / draw_group * draw_lanes + at % draw_lanes);
  const PhiloxBlock b = philox(stream.key, stream.high, block);
  const std::uint32_t word = half < 2 ? b[0] : half < 4 ? b[1] : half < 6 ? b[2] : b[3];
  return half % 2 == 0 ? word & 0xffffu : word >> 16;
}

/// The bits of elements [first, first + n) of a piece, n <= 256. Where the slice is contiguous and begins on
/// a group, that is one group.
ZTRAIN_FUNCTION void draw_for(const RandomStream& stream, const OptimizerPiece& piece, std::int64_t first,
                              std::int64_t n, std::uint32_t* __restrict bits) {
  std::uint32_t group_bits[draw_group];
  std::int64_t drawn = -1;
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t e = piece.slice_begin + first + i;
    const std::int64_t logical = e / piece.run * piece.stride + piece.offset + e % piece.run;
    const std::int64_t group = logical / draw_group, at = logical % draw_group;
    const bool contiguous = piece.run == piece.stride;  // runs follow each other
    std::int64_t length = n - i < draw_group - at ? n - i : draw_group - at;
    if (!contiguous && piece.run - e % piece.run < length) length = piece.run - e % piece.run;
    if (group != drawn) draw(stream, group, group_bits);
    drawn = group;
    for (std::int64_t k = 0; k < length; ++k) bits[i + k] = group_bits[at + k];
    i += length;
  }
}

/// Rounds to nearest.
struct RoundNearest {
  template <class T, class A>
  ZTRAIN_FUNCTION T store(A value, std::int64_t) const {
    return static_cast<T>(value);
  }
};

/// Adds sixteen random bits below the last kept one, then cuts them off. What is not finite is converted.
struct RoundStochastic {
  const std::uint32_t* __restrict bits;

  template <class T>
  ZTRAIN_FUNCTION bf16 store(float value, std::int64_t i) const {
    const auto u = std::bit_cast<std::uint32_t>(value);
    bf16 result;
    result.bits = (u & 0x7f800000u) == 0x7f800000u ? bf16::round(value)
                                                   : static_cast<std::uint16_t>((u + bits[i]) >> 16);
    return result;
  }
};

}  // namespace ztrain::kernels
