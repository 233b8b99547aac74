#pragma once
// Serial float64 sums: addition, sum of squares; and blocks that change places.

#include <cstddef>
#include <vector>

namespace ztrain::kernels::reference {

inline std::vector<double> add(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> c(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) c[i] = a[i] + b[i];
  return c;
}

inline double sum_squares(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

/// [outer, inner, n] -> [inner, outer, n]
inline std::vector<double> swap_blocks(const std::vector<double>& x, std::size_t outer, std::size_t inner) {
  const std::size_t n = x.size() / (outer * inner);
  std::vector<double> y;
  for (std::size_t j = 0; j < inner; ++j)
    for (std::size_t i = 0; i < outer; ++i)
      for (std::size_t k = 0; k < n; ++k) y.push_back(x[(i * inner + j) * n + k]);
  return y;
}

}  // namespace ztrain::kernels::reference
