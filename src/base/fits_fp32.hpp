#pragma once
// Says which numbers may go to kernels that compute in fp32, for decks and for the command line.

#include <cmath>
#include <limits>

namespace ztrain {

constexpr double least_fp32 = std::numeric_limits<float>::min();  ///< a smaller number may become 0
constexpr double most_fp32 = std::numeric_limits<float>::max();

/// Returns whether x is 0 or within the range of fp32's normal numbers, and so neither NaN nor infinite.
inline bool fits_fp32(double x) {
  return x == 0 || (std::abs(x) >= least_fp32 && std::abs(x) <= most_fp32);
}

}  // namespace ztrain
