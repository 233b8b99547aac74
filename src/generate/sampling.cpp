#include "generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace ztrain::generate {
namespace {

struct Candidates {
  std::vector<std::int32_t> tokens;  ///< likeliest first, up to `sorted`
  std::vector<double> weights;       ///< exp((logit - largest) / temperature), by token
  std::size_t sorted = 0;

  /// Sorts the likeliest tokens up to the count-th.
  void sort_to(std::size_t count) {
    if (count <= sorted) return;
    const auto at = [&](std::size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
    std::partial_sort(at(sorted), at(count), tokens.end(), [&](std::int32_t a, std::int32_t b) {
      const double wa = weight(a), wb = weight(b);
      return wa != wb ? wa > wb : a < b;
    });
    sorted = count;
  }
  double weight(std::int32_t token) const { return weights[static_cast<std::size_t>(token)]; }
  double sum() const {
    double total = 0;
    for (const std::int32_t t : tokens) total += weight(t);
    return total;
  }
};

/// Returns the smallest number of likeliest tokens whose weights reach `wanted`. Sorts only a few as long as
/// a few suffice.
std::size_t nucleus(Candidates& c, double wanted) {
  double reached = 0;
  std::size_t count = 0;
  for (std::size_t upto = 64; count < c.tokens.size(); upto *= 8) {
    c.sort_to(std::min(upto, c.tokens.size()));
    while (count < c.sorted) {
      reached += c.weight(c.tokens[count++]);
      if (reached >= wanted) return count;
    }
  }
  return count;
}

constexpr const char* cause =
    "its weights are damaged, or too large for what it computes in: give another model, or a wider --dtype";

}  // namespace

std::int32_t sample(std::span<const float> logits, const Sampling& s, double draw) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    REQUIRE(!std::isnan(logits[i]), "the model's logit of token {} is NaN: {}", i, cause);
    if (logits[i] > logits[best]) best = i;
  }
  REQUIRE(!logits.empty() && std::isfinite(logits[best]), "the model's logits are not finite: {}", cause);
  if (s.temperature <= 0) return static_cast<std::int32_t>(best);
  Candidates c;
  c.tokens.resize(logits.size());
  std::iota(c.tokens.begin(), c.tokens.end(), 0);
  for (const float x : logits)
    c.weights.push_back(
        std::exp((static_cast<double>(x) - static_cast<double>(logits[best])) / s.temperature));
  if (s.top_k > 0 && static_cast<std::size_t>(s.top_k) < c.tokens.size()) {
    c.sort_to(static_cast<std::size_t>(s.top_k));
    c.tokens.resize(c.sorted);
  }
  if (s.top_p < 1) c.tokens.resize(nucleus(c, s.top_p * c.sum()));
  double left = draw * c.sum();
  for (const std::int32_t token : c.tokens)
    if ((left -= c.weight(token)) <= 0) return token;
  return c.tokens.front();
}

}  // namespace ztrain::generate
