#pragma once
// The choice of the next token from its logits, on the host.

#include <cstdint>
#include <span>

namespace ztrain::generate {

struct Sampling {
  double temperature = 0.8;  ///< 0: the likeliest token
  std::int64_t top_k = 0;    ///< only the k likeliest; 0: all
  /// Only the likeliest tokens that together have this probability, the one that reaches it included: nucleus
  /// sampling (Holtzman et al., "The curious case of neural text degeneration", 2020), of what top_k leaves.
  double top_p = 1;
};

/// Draws from softmax(logits / temperature) as far as top_k and top_p leave it; of equal logits the lower
/// token comes first. draw: uniform in (0, 1). Throws Error when the largest logit is not finite or one is
/// NaN.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double draw);

}  // namespace ztrain::generate
