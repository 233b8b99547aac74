#pragma once
// Plain serial output head and cross-entropy in float64, and its gradients.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/head/head_loss.hpp"

namespace ztrain::kernels::reference {

struct HeadLossResult {
  double loss = 0;                  ///< sum of token_weight * nll
  double weight = 0;                ///< sum of token_weight
  std::vector<double> grad_h;       ///< [tokens, width], of loss
  std::vector<double> grad_weight;  ///< [vocabulary, width], of loss
};

inline HeadLossResult head_loss(const HeadLossShape& s, const HeadLossInput<double>& in) {
  HeadLossResult r{0, 0, std::vector<double>(s.tokens * s.width),
                   std::vector<double>(s.vocabulary * s.width)};
  std::vector<double> logit(s.vocabulary);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const double weight = in.token_weights.data[t];
    if (weight == 0) continue;
    const double* h = in.h.data + t * s.width;
    for (std::int64_t v = 0; v < s.vocabulary; ++v) {
      logit[v] = 0;
      for (std::int64_t d = 0; d < s.width; ++d) logit[v] += h[d] * in.weight.data[v * s.width + d];
      if (s.soft_cap > 0) logit[v] = s.soft_cap * std::tanh(logit[v] / s.soft_cap);
    }
    const double maximum = *std::max_element(logit.begin(), logit.end());
    double sum = 0;
    for (const double value : logit) sum += std::exp(value - maximum);
    const double lse = maximum + std::log(sum);
    const double smoothing = s.terms.label_smoothing, words = static_cast<double>(s.vocabulary);
    double mean = 0;
    for (const double value : logit) mean += value / words;
    r.loss += weight * (lse - (1 - smoothing) * logit[in.targets.data[t]] - smoothing * mean +
                        s.terms.z_loss * lse * lse);
    r.weight += weight;
    for (std::int64_t v = 0; v < s.vocabulary; ++v) {
      const double capped = s.soft_cap > 0 ? logit[v] / s.soft_cap : 0;
      const double share = std::exp(logit[v] - lse) * (1 + 2 * s.terms.z_loss * lse) - smoothing / words;
      const double g =
          weight * (share - (v == in.targets.data[t] ? 1 - smoothing : 0)) * (1 - capped * capped);
      for (std::int64_t d = 0; d < s.width; ++d) {
        r.grad_h[t * s.width + d] += g * in.weight.data[v * s.width + d];
        r.grad_weight[v * s.width + d] += g * h[d];
      }
    }
  }
  return r;
}

}  // namespace ztrain::kernels::reference
