#pragma once
// Plain serial attention of new tokens over a cache, in float64.

#include <cstdint>
#include <vector>

#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/reference.hpp"
#include "kernels/sinks/reference.hpp"

namespace ztrain::kernels::reference {

/// [tokens, heads * head_dim]; every token's own row is in the cache. Attention of the last tokens of one
/// document, whose keys and values lie token by token, with the sinks if there are some.
inline std::vector<double> attention_cached(const CachedAttentionInput<double>& in) {
  AttentionShape s = in.shape;
  const std::int64_t hd = s.head_dim, capacity = in.k.rows / s.kv_heads;
  s.first_query = in.begin.data[0];
  s.keys = s.first_query + s.tokens;
  const auto by_token = [&](Matrix<const double> cache) {
    std::vector<double> rows;
    for (std::int64_t u = 0; u < s.keys; ++u)
      for (std::int64_t kv = 0; kv < s.kv_heads; ++kv) {
        const double* const row = cache.data + (kv * capacity + u) * hd;
        rows.insert(rows.end(), row, row + hd);
      }
    return rows;
  };
  const std::vector<double> k = by_token(in.k), v = by_token(in.v);
  const std::vector<std::int32_t> start(static_cast<std::size_t>(s.tokens), 0);
  const std::int64_t cols = s.kv_heads * hd;
  const AttentionInput<double> all{
      s, in.q, {k.data(), s.keys, cols}, {v.data(), s.keys, cols}, {start.data(), s.tokens}};
  if (in.sinks.count == 0) return attention(all).o;
  return attention_with_sinks(all, std::vector(in.sinks.data, in.sinks.data + in.sinks.count)).o;
}

}  // namespace ztrain::kernels::reference
