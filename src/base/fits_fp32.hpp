#pragma once
// Which numbers may go to kernels that compute in fp32. Here for decks and for the command line alike.

#include <cmath>
#include <limits>

namespace ztrain {

constexpr double least_fp32 = std::numeric_limits<float>::min();  ///< above 0; what is smaller may become 0
constexpr double most_fp32 = std::numeric_limits<float>::max();

/// Is this number 0, or within the range of fp32's normal numbers? Neither NaN nor infinite, then.
inline bool fits_fp32(double x) {
  return x == 0 || (std::abs(x) >= least_fp32 && std::abs(x) <= most_fp32);
}

}  // namespace ztrain
