#pragma once
// Tokens for the tests of the output head, whole and split over words.

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/reference.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::test {

using namespace ztrain::kernels;

/// Every fifth token is ignored, and its target is no word.
template <class T>
struct HeadLossCase {
  HeadLossShape shape;
  Array<T> h, weight;
  std::vector<double> h64, weight64;
  Array<std::int32_t> targets;
  Array<float> token_weights;

  explicit HeadLossCase(const HeadLossShape& s)
      : shape(s),
        h(random<T>(s.tokens * s.width, 1)),
        weight(random<T>(s.vocabulary * s.width, 2, 3 / std::sqrt(static_cast<double>(s.width)))),
        h64(doubles(h)),
        weight64(doubles(weight)) {
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      const bool ignored = t % 5 == 3;
      targets.push_back(ignored ? -100 : static_cast<std::int32_t>((t * 7919 + 13) % s.vocabulary));
      token_weights.push_back(ignored ? 0.0f : t % 2 == 0 ? 1.0f : 0.5f);
    }
  }

  HeadLossInput<T> input() const {
    return {matrix(h, shape.tokens), matrix(weight, shape.vocabulary), view(targets), view(token_weights)};
  }
  HeadLossInput<double> input64() const {
    return {matrix(h64, shape.tokens), matrix(weight64, shape.vocabulary), view(targets),
            view(token_weights)};
  }
  Array<std::byte> workspace() const {
    const auto bytes = head_loss_workspace_bytes(shape.tokens, shape.vocabulary, shape.width, dtype_of<T>(),
                                                 dtype_of<T>(), build_target());
    return Array<std::byte>(static_cast<std::size_t>(bytes), std::byte{0xff});
  }
};

/// Logit gradients are rounded to T before their products.
template <class T>
inline constexpr double head_error = std::is_same_v<T, double>  ? 1e-12
                                     : std::is_same_v<T, float> ? 1e-5
                                     : std::is_same_v<T, f16>   ? 2e-3
                                                                : 1.5e-2;
template <class T>
inline constexpr double head_loss_error = std::is_same_v<T, double> ? 1e-13 : 1e-6;

}  // namespace ztrain::test
