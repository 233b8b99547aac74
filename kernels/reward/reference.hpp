#pragma once
// Plain serial values of tokens in float64, and their gradients.

#include <cstddef>
#include <vector>

namespace ztrain::kernels::reference {

using Values = std::vector<double>;

/// Operands [rows, width], [width], [rows].
struct RewardHead {
  Values h, weight, token_weights;
};

inline Values reward_tokens(const RewardHead& head) {
  const std::size_t width = head.weight.size();
  Values nll(head.token_weights.size());
  for (std::size_t t = 0; t < nll.size(); ++t)
    for (std::size_t i = 0; i < width; ++i)
      nll[t] -= head.token_weights[t] * head.h[t * width + i] * head.weight[i];
  return nll;
}

struct RewardGradients {
  Values dh, dweight;
};

inline RewardGradients reward_tokens_backward(const RewardHead& head, const Values& dnll) {
  const std::size_t width = head.weight.size();
  RewardGradients d{Values(head.h.size()), Values(width)};
  for (std::size_t t = 0; t < dnll.size(); ++t)
    for (std::size_t i = 0; i < width; ++i) {
      d.dh[t * width + i] = -dnll[t] * head.token_weights[t] * head.weight[i];
      d.dweight[i] -= dnll[t] * head.token_weights[t] * head.h[t * width + i];
    }
  return d;
}

}  // namespace ztrain::kernels::reference
