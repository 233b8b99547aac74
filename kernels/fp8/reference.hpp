#pragma once
// Quantisation to 8-bit floats in serial float64: the scale is the least power of two with which the largest
// magnitude is at most `largest`, the largest code.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.hpp"

namespace ztrain::kernels::reference {

inline double fp8_scale(double magnitude, double largest) {
  if (magnitude == 0) return 1;
  double scale = std::exp2(std::ceil(std::log2(magnitude / largest)) - 1);
  while (magnitude > largest * scale) scale *= 2;
  return scale;
}

struct Fp8Codes {
  std::vector<double> values;  ///< code * scale
  std::vector<double> scales;  ///< one per group
};

/// x in groups of `group` elements, each with a scale. Code is f8e4m3 or f8e5m2, whose rounding the tests of
/// base/dtype.hpp show. Values of x must be exact in a float, from which Code rounds.
template <class Code>
Fp8Codes fp8_quantize(const std::vector<double>& x, std::size_t group, double largest) {
  Fp8Codes result;
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    double most = 0;
    for (std::size_t i = begin; i < begin + group; ++i) most = std::max(most, std::abs(x[i]));
    const double scale = fp8_scale(most, largest);
    result.scales.push_back(scale);
    for (std::size_t i = begin; i < begin + group; ++i)
      result.values.push_back(
          scale * static_cast<double>(static_cast<float>(Code(static_cast<float>(x[i] / scale)))));
  }
  return result;
}

}  // namespace ztrain::kernels::reference
