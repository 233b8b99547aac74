#pragma once
// Plain serial attention with sinks in float64, from its definition: each query has one more score, which has
// no value.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention/reference.hpp"

namespace ztrain::kernels::reference {

inline Attention attention_with_sinks(const AttentionInput<double>& in, const std::vector<double>& sinks) {
  const AttentionShape& s = in.shape;
  Attention result = attention(in);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      auto score = scores(s, in.q.data, in.k.data, head, t, start_of(in, t));
      const double without = log_sum_exp(score);
      score.push_back(sinks[static_cast<std::size_t>(head)]);
      const auto row = static_cast<std::size_t>(t * s.heads + head);
      result.lse[row] = log_sum_exp(score);
      for (std::int64_t d = 0; d < s.head_dim; ++d)
        result.o[row * static_cast<std::size_t>(s.head_dim) + static_cast<std::size_t>(d)] *=
            std::exp(without - result.lse[row]);
    }
  return result;
}

}  // namespace ztrain::kernels::reference
