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
  if (name == "clamped_silu") {
    const double m = std::min(x, 7.0), sigmoid = 1 / (1 + std::exp(-1.702 * m));
    return {m * sigmoid, x > 7 ? 0 : sigmoid + 1.702 * m * sigmoid * (1 - sigmoid)};
  }
  // gelu_tanh with (1 + tanh z) / 2 = 1 / (1 + exp(-2z)), whose digits are not lost for z < 0.
  const double root = std::sqrt(2 / std::acos(-1.0)), z = root * (x + 0.044715 * x * x * x);
  const double share = 1 / (1 + std::exp(-2 * z)), rest = 1 / (1 + std::exp(2 * z));
  return {x * share, share + 2 * x * share * rest * root * (1 + 3 * 0.044715 * x * x)};
}

/// Returns the factor that `up` contributes to a gated activation, and its slope.
inline Activated factor_of_up(std::string_view name, double up) {
  if (name != "clamped_silu") return {up, 1};
  return {std::clamp(up, -7.0, 7.0) + 1, std::abs(up) <= 7 ? 1.0 : 0.0};
}

inline std::vector<double> gated_forward(std::string_view name, const std::vector<double>& gate,
                                         const std::vector<double>& up) {
  std::vector<double> y(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i)
    y[i] = activated(name, gate[i]).value * factor_of_up(name, up[i]).value;
  return y;
}

struct GatedGradients {
  std::vector<double> dgate, dup;
};

inline GatedGradients gated_backward(std::string_view name, const std::vector<double>& gate,
                                     const std::vector<double>& up, const std::vector<double>& dy) {
  GatedGradients result{std::vector<double>(gate.size()), std::vector<double>(gate.size())};
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const Activated f = activated(name, gate[i]), u = factor_of_up(name, up[i]);
    result.dgate[i] = dy[i] * u.value * f.slope;
    result.dup[i] = dy[i] * f.value * u.slope;
  }
  return result;
}

/// xIELU's constants; p and n are those before softplus.
struct XieluConstants {
  double p, n, beta, eps;
};

inline double xielu(double x, const XieluConstants& c) {
  const double alpha_p = std::log1p(std::exp(c.p)), alpha_n = c.beta + std::log1p(std::exp(c.n));
  return c.beta * x + (x > 0 ? alpha_p * x * x : alpha_n * (std::expm1(std::min(x, c.eps)) - x));
}

/// Slopes of xielu in x, p and n.
struct XieluSlopes {
  double x, p, n;
};

inline XieluSlopes xielu_slopes(double x, const XieluConstants& c) {
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  if (x > 0) return {c.beta + 2 * std::log1p(std::exp(c.p)) * x, sigmoid(c.p) * x * x, 0};
  const double rise = x > c.eps ? 0 : std::exp(x), alpha_n = c.beta + std::log1p(std::exp(c.n));
  return {c.beta + alpha_n * (rise - 1), 0, sigmoid(c.n) * (std::expm1(std::min(x, c.eps)) - x)};
}

}  // namespace ztrain::kernels::reference
