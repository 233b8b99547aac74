#pragma once
// Serial float64 AdamW, operation by operation in the order of torch.optim.AdamW, and the scalars that
// precede it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/step_scalars.hpp"

namespace ztrain::kernels::reference {

struct AdamWState {
  std::vector<double> parameter, exp_avg, exp_avg_sq;
};

struct AdamWSettings {
  double beta1, beta2, eps, weight_decay, lr_scale;
};

inline void adamw(AdamWState& state, const std::vector<double>& gradient, const StepScalars& scalars,
                  const AdamWSettings& settings) {
  if (scalars.found_inf != 0) return;
  const double lr = scalars.learning_rate * settings.lr_scale;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * scalars.gradient_multiplier;
    double& p = state.parameter[i];
    double& m = state.exp_avg[i];
    double& v = state.exp_avg_sq[i];
    p *= 1 - lr * settings.weight_decay;
    m = settings.beta1 * m + (1 - settings.beta1) * g;
    v = settings.beta2 * v + (1 - settings.beta2) * g * g;
    const double denominator = std::sqrt(v) / std::sqrt(scalars.bias_correction2) + settings.eps;
    p -= lr / scalars.bias_correction1 * m / denominator;
  }
}

/// partials: one {loss sum, weight sum, sum of squares} per rank.
inline StepScalars finish_step(const std::vector<std::array<double, 3>>& partials, StepScalars s) {
  double loss = 0, tokens = 0, squares = 0;
  for (const auto& partial : partials) {
    loss += partial[0];
    tokens += partial[1];
    squares += partial[2];
  }
  s.valid_tokens = tokens;
  s.found_inf = std::isfinite(squares) ? 0 : 1;
  s.loss = s.gradient_norm = s.gradient_multiplier = 0;
  if (tokens == 0) return s;
  s.loss = loss / tokens;
  s.gradient_norm = std::sqrt(squares) / tokens / s.loss_scale;
  s.gradient_multiplier =
      (s.max_norm > 0 ? std::min(1.0, s.max_norm / (s.gradient_norm + 1e-6)) : 1.0) / tokens / s.loss_scale;
  return s;
}

}  // namespace ztrain::kernels::reference
