#pragma once
// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011). A draw is a pure function of (key, counter): keyed by meaning, never by rank,
// it gives the same numbers whatever the mesh.

#include <array>
#include <cmath>
#include <cstdint>

#include "base/function.hpp"

namespace ztrain {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Multipliers of the first and third word, and the numbers by which the halves of the key grow in each
/// round.
inline constexpr std::uint32_t philox_multiplier_0 = 0xD2511F53u, philox_multiplier_1 = 0xCD9E8D57u;
inline constexpr std::uint32_t philox_step_0 = 0x9E3779B9u, philox_step_1 = 0xBB67AE85u;
inline constexpr int philox_rounds = 10;

constexpr PhiloxBlock philox(std::uint64_t key, std::uint64_t counter_high, std::uint64_t counter_low) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  PhiloxBlock c{static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
                static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{philox_multiplier_0} * c[0];
    const std::uint64_t p1 = std::uint64_t{philox_multiplier_1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += philox_step_0;
    k1 += philox_step_1;
  }
  return c;
}

/// Computes blocks side by side, c[w][l] = philox(key, counter_high, first + l)[w], in loops that a compiler
/// vectorises.
template <int lanes>
ZTRAIN_FUNCTION void philox_lanes(std::uint64_t key, std::uint64_t counter_high, std::uint64_t first,
                                  std::uint32_t (&c)[4][lanes]) {
  for (int l = 0; l < lanes; ++l) {
    const std::uint64_t counter = first + static_cast<std::uint64_t>(l);
    c[0][l] = static_cast<std::uint32_t>(counter);
    c[1][l] = static_cast<std::uint32_t>(counter >> 32);
    c[2][l] = static_cast<std::uint32_t>(counter_high);
    c[3][l] = static_cast<std::uint32_t>(counter_high >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < philox_rounds; ++round, k0 += philox_step_0, k1 += philox_step_1) {
    // The upper halves have their own loops, because one loop over all would not be vectorised.
    std::uint32_t high[2][lanes];
    for (int l = 0; l < lanes; ++l)
      high[0][l] = static_cast<std::uint32_t>((std::uint64_t{philox_multiplier_0} * c[0][l]) >> 32);
    for (int l = 0; l < lanes; ++l)
      high[1][l] = static_cast<std::uint32_t>((std::uint64_t{philox_multiplier_1} * c[2][l]) >> 32);
    for (int l = 0; l < lanes; ++l) {
      const std::uint32_t low0 = philox_multiplier_0 * c[0][l], low1 = philox_multiplier_1 * c[2][l];
      c[0][l] = high[1][l] ^ c[1][l] ^ k0;
      c[1][l] = low1;
      c[2][l] = high[0][l] ^ c[3][l] ^ k1;
      c[3][l] = low0;
    }
  }
}

/// Returns a number that is uniform in (0, 1), never 0.
constexpr double uniform(std::uint32_t bits) {
  return (static_cast<double>(bits) + 0.5) * 0x1p-32;
}

/// Returns standard normal number `index` of the stream (key, stream), by Box and Muller's method.
inline double normal(std::uint64_t key, std::uint64_t stream, std::uint64_t index) {
  const PhiloxBlock b = philox(key, stream, index / 2);
  const double radius = std::sqrt(-2.0 * std::log(uniform(b[0])));
  const double angle = 6.283185307179586476925 * uniform(b[1]);
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace ztrain
