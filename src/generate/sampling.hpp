#pragma once
// Chooses the next token from its logits, on the host.

#include <cstdint>
#include <span>

namespace ztrain::generate {

struct Sampling {
  double temperature = 0.8;  ///< 0: take the likeliest token
  std::int64_t top_k = 0;    ///< number of likeliest tokens that are kept; 0: all
  /// Probability that the kept likeliest tokens reach together: nucleus sampling (Holtzman et al., "The
  /// curious case of neural text degeneration", 2020), applied to what top_k leaves.
  double top_p = 1;
};

/// Draws from softmax(logits / temperature) over the tokens that top_k and top_p leave. Of equal logits the
/// lower token comes first. draw is uniform in (0, 1). Throws Error if the largest logit is not finite or any
/// is NaN.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double draw);

}  // namespace ztrain::generate
