#pragma once
// Serial float64 sums: addition, sum of squares, one row of a matrix.

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

inline std::vector<double> select_row(const std::vector<double>& x, std::size_t d, std::size_t row) {
  return {x.begin() + static_cast<std::ptrdiff_t>(row * d),
          x.begin() + static_cast<std::ptrdiff_t>((row + 1) * d)};
}

}  // namespace ztrain::kernels::reference
