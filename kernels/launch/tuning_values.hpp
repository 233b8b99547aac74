#pragma once
// What products are measured on. A GPU's power, and with it its clock, follows the bits that change from one
// number to the next, so that on equal numbers the wrong algorithm may win.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/dtype.hpp"
#include "base/philox.hpp"

namespace ztrain::kernels {

/// A prime number of them, repeated through a matrix: no stride of a power of two makes its rows equal.
inline constexpr std::size_t tuning_period = 262139;

/// Evenly drawn from both signs. Small enough that thousands of products may be added up in fp16; 8-bit
/// codes, which have scales and are never added up in their own type, from most of their range.
template <class T>
std::vector<T> tuning_values(std::uint64_t stream) {
  constexpr double largest = sizeof(T) == 1 ? 240 : 0.125;
  std::vector<T> values(tuning_period);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const PhiloxBlock drawn = philox(0x7475'6e69'6e67, stream, i / 4);
    for (std::size_t j = 0; j < 4 && i + j < values.size(); ++j)
      values[i + j] =
          static_cast<T>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(
              largest * (2 * uniform(drawn[j]) - 1)));
  }
  return values;
}

/// Of 8-bit codes: all alike, above 0. With it products of codes are as small as the others.
inline constexpr float tuning_scale = 0x1p-11f;

}  // namespace ztrain::kernels
