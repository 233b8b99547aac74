#pragma once
// Serial float64 scalars of a step: what stands between the partial sums and the optimizer.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernel_interface/step_scalars.hpp"

namespace ztrain::kernels::reference {

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
