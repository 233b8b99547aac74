#pragma once
// Plain serial attention of new tokens over a cache, in float64.

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention/cached/attention_cached.hpp"
#include "kernels/attention/reference.hpp"

namespace ztrain::kernels::reference {

/// [tokens, heads * head_dim]; every token's own row is in the cache.
inline std::vector<double> attention_cached(const CachedAttentionInput<double>& in) {
  const AttentionShape& s = in.shape;
  const std::int64_t hd = s.head_dim, capacity = in.k.rows / s.kv_heads;
  std::vector<double> o(s.tokens * s.heads * hd);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t row = in.begin.data[0] + t, kv = head / (s.heads / s.kv_heads);
      const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, row - s.window + 1) : 0;
      std::vector<double> score;
      for (std::int64_t u = first; u <= row; ++u) {
        double sum = 0;
        for (std::int64_t d = 0; d < hd; ++d)
          sum += in.q.data[(t * s.heads + head) * hd + d] * in.k.data[(kv * capacity + u) * hd + d];
        score.push_back(in.scale * sum);
      }
      const double lse = log_sum_exp(score);
      for (std::int64_t u = first; u <= row; ++u)
        for (std::int64_t d = 0; d < hd; ++d)
          o[(t * s.heads + head) * hd + d] +=
              std::exp(score[u - first] - lse) * in.v.data[(kv * capacity + u) * hd + d];
    }
  return o;
}

}  // namespace ztrain::kernels::reference
