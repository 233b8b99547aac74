#pragma once
// Terms that a token's loss may have besides the negative log-probability of its target.

#include <cstdint>

#include "base/function.hpp"

namespace ztrain::kernels {

/// Terms of a token's loss besides -log p(target): smoothed labels, where the target has 1 - label_smoothing
/// and each word besides label_smoothing / vocabulary; and z_loss * logsumexp(logits)^2, which keeps logits
/// small (Chowdhery et al., "PaLM", 2022).
struct LossTerms {
  double label_smoothing = 0, z_loss = 0;
  ZTRAIN_FUNCTION bool plain() const { return label_smoothing == 0 && z_loss == 0; }
};

/// A token's loss with its terms. mean: of the logits.
ZTRAIN_FUNCTION double loss_with_terms(const LossTerms& terms, double log_sum, double chosen, double mean) {
  return log_sum - (1 - terms.label_smoothing) * chosen - terms.label_smoothing * mean +
         terms.z_loss * log_sum * log_sum;
}

/// The gradient of such a loss, `scaled`, by a logit x is exp(x - maximum) factor - uniform, minus one_hot
/// for the target.
struct GradientTerms {
  double factor, one_hot, uniform;
  ZTRAIN_FUNCTION GradientTerms(const LossTerms& terms, double scaled, double sum, double log_sum,
                                std::int64_t vocabulary)
      : factor(scaled * (1 + 2 * terms.z_loss * log_sum) / sum),
        one_hot(scaled * (1 - terms.label_smoothing)),
        uniform(scaled * terms.label_smoothing / static_cast<double>(vocabulary)) {}
};

}  // namespace ztrain::kernels
