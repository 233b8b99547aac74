#pragma once
// Serial float64 embedding, forward and backward. W, dW [V, d]; x, dx [T, d].

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ztrain::kernels::reference {

inline std::vector<double> embedding_forward(std::span<const std::int32_t> tokens,
                                             const std::vector<double>& W, std::size_t d) {
  std::vector<double> x;
  for (const std::int32_t token : tokens) {
    for (std::size_t i = 0; i < d; ++i) x.push_back(W[static_cast<std::size_t>(token) * d + i]);
  }
  return x;
}

/// Adds to dW.
inline void embedding_backward(std::span<const std::int32_t> tokens, const std::vector<double>& dx,
                               std::size_t d, std::vector<double>& dW) {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (std::size_t i = 0; i < d; ++i) dW[static_cast<std::size_t>(tokens[t]) * d + i] += dx[t * d + i];
  }
}

}  // namespace ztrain::kernels::reference
