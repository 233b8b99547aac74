#pragma once
// Random words of consecutive elements, four of which share a block of the generator.

#include <cstdint>

#include "base/function.hpp"
#include "base/philox.hpp"

namespace ztrain::kernels {

/// Word `at` + `shift` of the eight in two blocks, at and shift in [0, 4). By selection: an index that is not
/// a constant would put the blocks into memory on a GPU.
ZTRAIN_FUNCTION std::uint32_t word_of(const PhiloxBlock& a, const PhiloxBlock& b, std::uint32_t at,
                                      std::uint32_t shift) {
  std::uint32_t word = a[at];
  for (std::uint32_t s = 1; s < 4; ++s) {
    const std::uint32_t other = at + s < 4 ? a[(at + s) % 4] : b[(at + s) % 4];
    word = shift == s ? other : word;
  }
  return word;
}

/// words[j] = philox(key, counter_high, (first + j) / 4)[(first + j) % 4] for j < n; room for n rounded up to
/// a multiple of 4.
ZTRAIN_FUNCTION void draw_words(std::uint64_t key, std::uint64_t counter_high, std::uint64_t first,
                                std::int64_t n, std::uint32_t* words) {
  const auto shift = static_cast<std::uint32_t>(first % 4);
  std::uint64_t index = first / 4;
  PhiloxBlock block = philox(key, counter_high, index);
  for (std::int64_t j = 0; j < n; j += 4) {
    // Whole blocks need none beyond the last.
    const PhiloxBlock next = shift != 0 || j + 4 < n ? philox(key, counter_high, ++index) : block;
    for (std::uint32_t at = 0; at < 4; ++at) words[j + at] = word_of(block, next, at, shift);
    block = next;
  }
}

/// words[4 b + w] = philox(key, counter_high, first + b)[w] for blocks b < count, word_lanes at a time: room
/// for count rounded up to them.
inline constexpr int word_lanes = 16;
inline void draw_blocks(std::uint64_t key, std::uint64_t counter_high, std::uint64_t first,
                        std::int64_t count, std::uint32_t* __restrict words) {
  for (std::int64_t begin = 0; begin < count; begin += word_lanes) {
    std::uint32_t c[4][word_lanes];
    philox_lanes(key, counter_high, first + static_cast<std::uint64_t>(begin), c);
    for (int l = 0; l < word_lanes; ++l)
      for (int w = 0; w < 4; ++w) words[4 * (begin + l) + w] = c[w][l];
  }
}

}  // namespace ztrain::kernels
