#pragma once
// Serial float64 dropout, element by element.

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/philox.hpp"

namespace ztrain::kernels::reference {

/// x: rows of `width`, the first of which is number first_token of the step.
inline std::vector<double> dropout(const std::vector<double>& x, std::int64_t width, double rate,
                                   std::uint64_t key, std::int64_t first_token, std::uint64_t step) {
  std::vector<double> y(x.size());
  for (std::size_t e = 0; e < x.size(); ++e) {
    const std::uint64_t index = static_cast<std::uint64_t>(first_token * width) + e;
    const double u = philox(key, step, index / 4)[index % 4] * 0x1p-32;
    y[e] = u >= std::floor(rate * 0x1p32) * 0x1p-32 ? x[e] / (1 - rate) : 0;
  }
  return y;
}

}  // namespace ztrain::kernels::reference
