#pragma once
// Serial float64 references of a token's distillation.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace ztrain::kernels::reference {

/// A token's logits, target, and the words of its teacher with their probabilities.
struct Distilled {
  std::vector<double> logits;
  std::int64_t target = 0;
  std::vector<std::int64_t> words;
  std::vector<double> shares;
};

inline double log_of_sum(const std::vector<double>& logits) {
  double sum = 0;
  const double maximum = *std::max_element(logits.begin(), logits.end());
  for (const double logit : logits) sum += std::exp(logit - maximum);
  return maximum + std::log(sum);
}

inline double cross_entropy(const Distilled& d) {
  return log_of_sum(d.logits) - d.logits[static_cast<std::size_t>(d.target)];
}

inline double divergence(const Distilled& d) {
  double sum = 0;
  for (std::size_t w = 0; w < d.words.size(); ++w)
    if (d.shares[w] > 0)
      sum += d.shares[w] *
             (std::log(d.shares[w]) - d.logits[static_cast<std::size_t>(d.words[w])] + log_of_sum(d.logits));
  return sum;
}

/// Returns the gradient of (1 - share s) CE + share KL by the logits.
inline std::vector<double> distilled_gradient(const Distilled& d, double share) {
  const double of_teacher = share * std::accumulate(d.shares.begin(), d.shares.end(), 0.0);
  std::vector<double> gradient;
  for (const double logit : d.logits) gradient.push_back(std::exp(logit - log_of_sum(d.logits)));
  gradient[static_cast<std::size_t>(d.target)] -= 1 - of_teacher;
  for (std::size_t w = 0; w < d.words.size(); ++w)
    gradient[static_cast<std::size_t>(d.words[w])] -= share * d.shares[w];
  return gradient;
}

/// Returns all words, the likeliest first.
inline std::vector<std::int64_t> by_likelihood(const std::vector<double>& logits) {
  std::vector<std::int64_t> words(logits.size());
  std::iota(words.begin(), words.end(), 0);
  std::stable_sort(words.begin(), words.end(), [&](std::int64_t a, std::int64_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return words;
}

}  // namespace ztrain::kernels::reference
