#pragma once
// Serial float64 activations, forward and backward.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace ztrain::kernels::reference {

/// A function's value and slope at x.
struct Activated {
  double value, slope;
};

inline Activated activated(std::string_view name, double x) {
  if (name == "silu") {
    const double sigmoid = 1 / (1 + std::exp(-x));
    return {x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid)};
  }
  // gelu_tanh
  const double root = std::sqrt(2 / std::acos(-1.0)), z = root * (x + 0.044715 * x * x * x);
  const double sech2 =
      1 / (std::cosh(std::min(std::abs(z), 300.0)) * std::cosh(std::min(std::abs(z), 300.0)));
  return {0.5 * x * (1 + std::tanh(z)),
          0.5 * (1 + std::tanh(z)) + 0.5 * x * sech2 * root * (1 + 3 * 0.044715 * x * x)};
}

inline std::vector<double> gated_forward(std::string_view name, const std::vector<double>& gate,
                                         const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) y[i] = activated(name, gate[i]).value * up[i];
  return y;
}

struct GatedGradients {
  std::vector<double> dgate, dup;
};

inline GatedGradients gated_backward(std::string_view name, const std::vector<double>& gate,
                                     const std::vector<double>& up, const std::vector<double>& dy) {
  GatedGradients result{std::vector<double>(gate.size()), std::vector<double>(gate.size())};
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const Activated f = activated(name, gate[i]);
    result.dgate[i] = dy[i] * up[i] * f.slope;
    result.dup[i] = dy[i] * f.value;
  }
  return result;
}

/// xIELU with constants p and n before softplus.
inline double xielu(double x, double p, double n, double beta, double eps) {
  const double alpha_p = std::log1p(std::exp(p)), alpha_n = beta + std::log1p(std::exp(n));
  return x > 0 ? alpha_p * x * x + beta * x : (std::expm1(std::min(x, eps)) - x) * alpha_n + beta * x;
}

}  // namespace ztrain::kernels::reference
