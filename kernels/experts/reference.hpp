#pragma once
// Serial float64 routing of tokens to experts. Row-major vectors; logits [T, E], slots [T, k], rows [T k, d].

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/experts/routing.hpp"

namespace ztrain::kernels::reference {

/// Returns the softmax of a token's logits, or their sigmoids.
inline std::vector<double> router_scores(const double* logits, std::size_t experts, RouterScore score) {
  std::vector<double> s(logits, logits + experts);
  const double most = score == RouterScore::softmax ? *std::max_element(s.begin(), s.end()) : 0;
  for (double& v : s) v = score == RouterScore::softmax ? std::exp(v - most) : 1 / (1 + std::exp(-v));
  if (score == RouterScore::softmax)
    for (const double sum = std::accumulate(s.begin(), s.end(), 0.0); double& v : s) v /= sum;
  return s;
}

/// Returns the weights of the chosen experts.
inline std::vector<double> route_weights(const RouteOptions& o, const std::vector<double>& logits,
                                         std::size_t experts, const std::vector<std::int32_t>& chosen) {
  const auto k = static_cast<std::size_t>(o.top_k);
  std::vector<double> weights;
  for (std::size_t t = 0; t < logits.size() / experts; ++t) {
    const auto s = router_scores(&logits[t * experts], experts, o.score);
    double sum = 0;
    for (std::size_t j = 0; j < k; ++j) sum += s[static_cast<std::size_t>(chosen[t * k + j])];
    for (std::size_t j = 0; j < k; ++j)
      weights.push_back(o.scale * s[static_cast<std::size_t>(chosen[t * k + j])] / (o.normalise ? sum : 1));
  }
  return weights;
}

/// Returns the experts that tokens choose. bias: empty, or [E].
inline std::vector<std::int32_t> route_experts(const RouteOptions& o, const std::vector<double>& logits,
                                               std::size_t experts, const std::vector<double>& bias) {
  std::vector<std::int32_t> chosen;
  for (std::size_t t = 0; t < logits.size() / experts; ++t) {
    auto s = router_scores(&logits[t * experts], experts, o.score);
    for (std::size_t e = 0; e < bias.size(); ++e) s[e] += bias[e];
    const std::size_t groups = static_cast<std::size_t>(std::max<std::int64_t>(o.groups, 1)),
                      size = experts / groups;
    const auto best_first = [](std::vector<double> values) {
      std::vector<std::size_t> order(values.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
      return order;
    };
    std::vector<double> of_group;
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<double> own(&s[g * size], &s[g * size] + size);
      std::sort(own.rbegin(), own.rend());
      of_group.push_back(own[0] + (o.top_two ? own[1] : 0));
    }
    const auto order = best_first(of_group);
    for (std::size_t g = static_cast<std::size_t>(o.top_groups); o.groups > 0 && g < groups; ++g)
      std::fill_n(&s[order[g] * size], size, -1e300);
    for (std::size_t j = 0; j < static_cast<std::size_t>(o.top_k); ++j)
      chosen.push_back(static_cast<std::int32_t>(best_first(s)[j]));
  }
  return chosen;
}

struct Sorted {
  std::vector<std::int32_t> slots, offsets;
};
inline Sorted sort_by_expert(const std::vector<std::int32_t>& chosen, std::int32_t experts) {
  Sorted sorted{std::vector<std::int32_t>(chosen.size()), {0}};
  std::int32_t next = 0;
  for (std::int32_t e = 0; e < experts; ++e) {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] == e) sorted.slots[i] = next++;
    sorted.offsets.push_back(next);
  }
  return sorted;
}

/// Returns rows with rows[slots[t, j]] = weights[t, j] x[t].
inline std::vector<double> spread_rows(const std::vector<double>& x, std::size_t d,
                                       const std::vector<std::int32_t>& slots,
                                       const std::vector<double>& weights) {
  std::vector<double> rows(slots.size() * d);
  const std::size_t k = slots.size() * d / x.size();
  for (std::size_t i = 0; i < slots.size(); ++i)
    for (std::size_t c = 0; c < d; ++c)
      rows[static_cast<std::size_t>(slots[i]) * d + c] = weights[i] * x[i / k * d + c];
  return rows;
}

/// Returns y; y[t] is the sum over j of weights[t, j] rows[slots[t, j]].
inline std::vector<double> gather_rows(const std::vector<double>& rows, std::size_t d, std::size_t k,
                                       const std::vector<std::int32_t>& slots,
                                       const std::vector<double>& weights) {
  std::vector<double> y(slots.size() / k * d);
  for (std::size_t i = 0; i < slots.size(); ++i)
    for (std::size_t c = 0; c < d; ++c)
      y[i / k * d + c] += weights[i] * rows[static_cast<std::size_t>(slots[i]) * d + c];
  return y;
}

/// Returns dy[t] . rows[slots[t, j]].
inline std::vector<double> row_products(const std::vector<double>& dy, const std::vector<double>& rows,
                                        std::size_t d, const std::vector<std::int32_t>& slots) {
  std::vector<double> products(slots.size());
  const std::size_t k = slots.size() * d / dy.size();
  for (std::size_t i = 0; i < slots.size(); ++i)
    for (std::size_t c = 0; c < d; ++c)
      products[i] += dy[i / k * d + c] * rows[static_cast<std::size_t>(slots[i]) * d + c];
  return products;
}

/// Returns the sums [2 E + 3], as RouterSums says.
inline std::vector<double> router_sums(RouterScore score, const std::vector<double>& logits,
                                       std::size_t experts, const std::vector<std::int32_t>& chosen,
                                       const std::vector<double>& weights) {
  std::vector<double> sums(2 * experts + 3);
  for (const std::int32_t e : chosen) sums[static_cast<std::size_t>(e)] += 1;
  for (std::size_t t = 0; t < logits.size() / experts; ++t) {
    const auto s = router_scores(&logits[t * experts], experts, score);
    const double total = std::accumulate(s.begin(), s.end(), 0.0);
    double exponentials = 0;
    for (std::size_t e = 0; e < experts; ++e) {
      sums[experts + e] += s[e] / total;
      exponentials += std::exp(logits[t * experts + e]);
    }
    sums[2 * experts] += 1;
    sums[2 * experts + 1] += std::pow(std::log(exponentials), 2);
    sums[2 * experts + 2] += weights[t];
  }
  return sums;
}

/// Returns the balance loss of one layer, as transformers' load_balancing_loss_func computes it.
inline double load_balancing_loss(const std::vector<double>& logits, std::size_t experts, std::size_t k,
                                  const std::vector<std::int32_t>& chosen) {
  const std::size_t tokens = logits.size() / experts;
  std::vector<double> share(k * experts), probability(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto s = router_scores(&logits[t * experts], experts, RouterScore::softmax);
    for (std::size_t e = 0; e < experts; ++e) probability[e] += s[e] / static_cast<double>(tokens);
    for (std::size_t j = 0; j < k; ++j)
      share[j * experts + static_cast<std::size_t>(chosen[t * k + j])] += 1 / static_cast<double>(tokens);
  }
  double loss = 0;
  for (std::size_t i = 0; i < share.size(); ++i) loss += share[i] * probability[i % experts];
  return loss * static_cast<double>(experts);
}

/// Returns the gradient of f at x by central differences.
template <class F>
std::vector<double> differences(const F& f, std::vector<double> x) {
  constexpr double step = 1e-5;
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    gradient[i] = (above - f(x)) / (2 * step);
    x[i] = at;
  }
  return gradient;
}

}  // namespace ztrain::kernels::reference
