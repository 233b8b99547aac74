#pragma once
// Plain serial causal grouped-query attention in float64, row by row, and its gradients. Tokens may be a part
// of the keys (AttentionShape::first_query).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention/attention.hpp"

namespace ztrain::kernels::reference {

struct Attention {
  std::vector<double> o;    ///< [tokens, heads * head_dim]
  std::vector<double> lse;  ///< [tokens, heads]
};

struct AttentionGradients {
  std::vector<double> q, k, v;  ///< of the shapes of q, k, v
};

/// The first key that token t sees: of its document, and of the `window` tokens that end with it.
inline std::int64_t start_of(const AttentionInput<double>& in, std::int64_t t) {
  std::int64_t start = in.document_start.data[t];
  while (in.shape.window > 0 && in.shape.first_query + t - start + 1 > in.shape.window) ++start;
  return start;
}

/// Returns whether the layout has the bit of a query's and a key's blocks.
inline bool sees_block(const AttentionShape& s, std::int64_t t, std::int64_t u) {
  const BlockLayout& layout = s.layout;
  if (layout.words == nullptr) return true;
  const std::int64_t block = layout.words[0], sequence = layout.words[1];
  const std::int64_t query = (s.key_begin + s.first_query + t) % sequence / block,
                     key = (s.key_begin + u) % sequence / block, words = (sequence / block + 63) / 64;
  return (static_cast<std::uint64_t>(layout.words[2 + query * words + key / 64]) >> (key % 64)) % 2 == 1;
}

/// Scores of one query against the keys from `start` to itself; minus infinity for absent blocks.
inline std::vector<double> scores(const AttentionShape& s, const double* q, const double* k,
                                  std::int64_t head, std::int64_t t, std::int64_t start) {
  const std::int64_t kv = head / (s.heads / s.kv_heads), hd = s.head_dim;
  std::vector<double> result;
  for (std::int64_t u = start; u <= s.first_query + t; ++u) {
    double sum = 0;
    for (std::int64_t d = 0; d < hd; ++d)
      sum += q[(t * s.heads + head) * hd + d] * k[(u * s.kv_heads + kv) * hd + d];
    if (!sees_block(s, t, u)) {
      result.push_back(-std::numeric_limits<double>::infinity());
      continue;
    }
    const double score = s.score_scale() * sum;
    result.push_back(s.soft_cap > 0 ? s.soft_cap * std::tanh(score / s.soft_cap) : score);
  }
  return result;
}

inline double log_sum_exp(const std::vector<double>& x) {
  const double maximum = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double value : x) sum += std::exp(value - maximum);
  return maximum + std::log(sum);
}

inline Attention attention(const AttentionInput<double>& in) {
  const AttentionShape& s = in.shape;
  const std::int64_t hd = s.head_dim;
  Attention result{std::vector<double>(s.tokens * s.heads * hd), std::vector<double>(s.tokens * s.heads)};
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t start = start_of(in, t), kv = head / (s.heads / s.kv_heads);
      const auto score = scores(s, in.q.data, in.k.data, head, t, start);
      const double lse = log_sum_exp(score);
      result.lse[t * s.heads + head] = lse;
      for (std::int64_t u = start; u <= s.first_query + t; ++u)
        for (std::int64_t d = 0; d < hd; ++d)
          result.o[(t * s.heads + head) * hd + d] +=
              std::exp(score[u - start] - lse) * in.v.data[(u * s.kv_heads + kv) * hd + d];
    }
  return result;
}

/// Of sum(o * dout).
inline AttentionGradients attention_gradients(const AttentionInput<double>& in,
                                              const std::vector<double>& dout) {
  const AttentionShape& s = in.shape;
  const std::int64_t hd = s.head_dim;
  AttentionGradients g{std::vector<double>(s.tokens * s.heads * hd),
                       std::vector<double>(s.key_count() * s.kv_heads * hd),
                       std::vector<double>(s.key_count() * s.kv_heads * hd)};
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t start = start_of(in, t), kv = head / (s.heads / s.kv_heads);
      const std::int64_t query = (t * s.heads + head) * hd;
      const auto score = scores(s, in.q.data, in.k.data, head, t, start);
      const double lse = log_sum_exp(score);
      std::vector<double> p(score.size()), dp(score.size());
      double mean = 0;
      for (std::size_t i = 0; i < p.size(); ++i) {
        const std::int64_t key = ((start + static_cast<std::int64_t>(i)) * s.kv_heads + kv) * hd;
        p[i] = std::exp(score[i] - lse);
        for (std::int64_t d = 0; d < hd; ++d) {
          dp[i] += dout[query + d] * in.v.data[key + d];
          g.v[key + d] += p[i] * dout[query + d];
        }
        mean += p[i] * dp[i];
      }
      for (std::size_t i = 0; i < p.size(); ++i) {
        const std::int64_t key = ((start + static_cast<std::int64_t>(i)) * s.kv_heads + kv) * hd;
        const double capped = s.soft_cap > 0 ? score[i] / s.soft_cap : 0;
        if (p[i] == 0) continue;  // a score that is masked is no number to cap
        const double ds = s.score_scale() * p[i] * (dp[i] - mean) * (1 - capped * capped);
        for (std::int64_t d = 0; d < hd; ++d) {
          g.q[query + d] += ds * in.k.data[key + d];
          g.k[key + d] += ds * in.q.data[query + d];
        }
      }
    }
  return g;
}

}  // namespace ztrain::kernels::reference
