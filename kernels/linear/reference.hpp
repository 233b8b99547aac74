#pragma once
// Plain serial linear layer in float64, and its gradients.

#include <cstdint>
#include <vector>

namespace ztrain::kernels::reference {

/// y[tokens, out] = x[tokens, in] W[out, in]^T + bias[out]; an empty bias is zero.
inline std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w,
                                  const std::vector<double>& bias, std::int64_t tokens, std::int64_t in,
                                  std::int64_t out) {
  std::vector<double> y(tokens * out);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (std::int64_t i = 0; i < in; ++i) sum += x[t * in + i] * w[o * in + i];
      y[t * out + o] = sum;
    }
  return y;
}

struct LinearGradients {
  std::vector<double> x;     ///< [tokens, in]
  std::vector<double> w;     ///< [out, in]
  std::vector<double> bias;  ///< [out]
};

inline LinearGradients linear_gradients(const std::vector<double>& x, const std::vector<double>& w,
                                        const std::vector<double>& dy, std::int64_t tokens, std::int64_t in,
                                        std::int64_t out) {
  LinearGradients g{std::vector<double>(tokens * in), std::vector<double>(out * in),
                    std::vector<double>(out)};
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t o = 0; o < out; ++o) {
      const double d = dy[t * out + o];
      g.bias[o] += d;
      for (std::int64_t i = 0; i < in; ++i) {
        g.x[t * in + i] += d * w[o * in + i];
        g.w[o * in + i] += d * x[t * in + i];
      }
    }
  return g;
}

}  // namespace ztrain::kernels::reference
