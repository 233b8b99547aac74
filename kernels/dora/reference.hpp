#pragma once
// Plain serial layers with learned magnitudes in float64.

#include <cmath>
#include <cstdint>
#include <vector>

namespace ztrain::kernels::reference {

/// Squares of the rows of weight [n, k] + scale b [n, r] a [r, k].
inline std::vector<double> dora_squares(const std::vector<double>& weight, const std::vector<double>& a,
                                        const std::vector<double>& b, double scale, std::int64_t n,
                                        std::int64_t k, std::int64_t r) {
  std::vector<double> squares(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < k; ++j) {
      double value = weight[i * k + j];
      for (std::int64_t q = 0; q < r; ++q) value += scale * b[i * r + q] * a[q * k + j];
      squares[i] += value * value;
    }
  return squares;
}

/// x [tokens, n] magnitude / sqrt(squares) + bias; an empty bias is zero. norm: the root as the kernel rounds
/// it.
template <class Norm>
std::vector<double> dora_scale(const std::vector<double>& x, const std::vector<double>& magnitude,
                               const std::vector<double>& squares, const std::vector<double>& bias,
                               std::int64_t n, const Norm& norm) {
  std::vector<double> y(x.size());
  for (std::size_t e = 0; e < x.size(); ++e) {
    const std::size_t i = e % static_cast<std::size_t>(n);
    const double root = norm(std::sqrt(squares[i]));
    y[e] = (root > 0 ? x[e] * magnitude[i] / root : 0) + (bias.empty() ? 0 : bias[i]);
  }
  return y;
}

template <class Norm>
std::vector<double> dora_grad_magnitude(const std::vector<double>& dy, const std::vector<double>& x,
                                        const std::vector<double>& squares, std::int64_t n,
                                        const Norm& norm) {
  std::vector<double> dmagnitude(n);
  for (std::size_t e = 0; e < x.size(); ++e) {
    const std::size_t i = e % static_cast<std::size_t>(n);
    const double root = norm(std::sqrt(squares[i]));
    if (root > 0) dmagnitude[i] += dy[e] * x[e] / root;
  }
  return dmagnitude;
}

}  // namespace ztrain::kernels::reference
