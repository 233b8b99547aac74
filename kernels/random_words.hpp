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

inline std::uint32_t upper_half(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}

/// words[4 b + w] = philox(key, counter_high, first + b)[w] for blocks b < count, word_lanes at a time in
/// loops that a CPU's compiler vectorises: room for count rounded up to them.
inline constexpr int word_lanes = 16;
inline void draw_blocks(std::uint64_t key, std::uint64_t counter_high, std::uint64_t first,
                        std::int64_t count, std::uint32_t* __restrict words) {
  for (std::int64_t begin = 0; begin < count; begin += word_lanes) {
    std::uint32_t c[4][word_lanes];
    for (int l = 0; l < word_lanes; ++l) {
      const std::uint64_t counter = first + static_cast<std::uint64_t>(begin + l);
      c[0][l] = static_cast<std::uint32_t>(counter);
      c[1][l] = static_cast<std::uint32_t>(counter >> 32);
      c[2][l] = static_cast<std::uint32_t>(counter_high);
      c[3][l] = static_cast<std::uint32_t>(counter_high >> 32);
    }
    auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      // The upper halves have loops of their own: one over all would not be vectorised.
      std::uint32_t high[2][word_lanes];
      for (int l = 0; l < word_lanes; ++l) high[0][l] = upper_half(0xD2511F53u, c[0][l]);
      for (int l = 0; l < word_lanes; ++l) high[1][l] = upper_half(0xCD9E8D57u, c[2][l]);
      for (int l = 0; l < word_lanes; ++l) {
        const std::uint32_t low0 = 0xD2511F53u * c[0][l], low1 = 0xCD9E8D57u * c[2][l];
        c[0][l] = high[1][l] ^ c[1][l] ^ k0;
        c[1][l] = low1;
        c[2][l] = high[0][l] ^ c[3][l] ^ k1;
        c[3][l] = low0;
      }
    }
    for (int l = 0; l < word_lanes; ++l)
      for (int w = 0; w < 4; ++w) words[4 * (begin + l) + w] = c[w][l];
  }
}

}  // namespace ztrain::kernels
