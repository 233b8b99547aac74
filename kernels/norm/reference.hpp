#pragma once
// Serial float64 root-mean-square normalisation, forward and backward. Row-major vectors; x [rows, d].

#include <cmath>
#include <cstddef>
#include <vector>

namespace ztrain::kernels::reference {

struct RmsnormResult {
  std::vector<double> y, rstd;
};

inline RmsnormResult rmsnorm_forward(const std::vector<double>& x, const std::vector<double>& weight,
                                     double eps) {
  const std::size_t d = weight.size(), rows = x.size() / d;
  RmsnormResult result{std::vector<double>(x.size()), std::vector<double>(rows)};
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t i = 0; i < d; ++i) squares += x[r * d + i] * x[r * d + i];
    result.rstd[r] = 1 / std::sqrt(squares / static_cast<double>(d) + eps);
    for (std::size_t i = 0; i < d; ++i) result.y[r * d + i] = x[r * d + i] * result.rstd[r] * weight[i];
  }
  return result;
}

struct RmsnormGradients {
  std::vector<double> dx, dweight;
};

inline RmsnormGradients rmsnorm_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                         double eps, const std::vector<double>& dy) {
  const std::size_t d = weight.size(), rows = x.size() / d;
  const std::vector<double> rstd = rmsnorm_forward(x, weight, eps).rstd;
  RmsnormGradients result{std::vector<double>(x.size()), std::vector<double>(d)};
  for (std::size_t r = 0; r < rows; ++r) {
    double projection = 0;
    for (std::size_t i = 0; i < d; ++i) projection += dy[r * d + i] * weight[i] * x[r * d + i];
    for (std::size_t i = 0; i < d; ++i) {
      const std::size_t at = r * d + i;
      result.dx[at] = rstd[r] * weight[i] * dy[at] -
                      x[at] * projection * rstd[r] * rstd[r] * rstd[r] / static_cast<double>(d);
      result.dweight[i] += dy[at] * x[at] * rstd[r];
    }
  }
  return result;
}

}  // namespace ztrain::kernels::reference
