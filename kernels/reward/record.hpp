#pragma once
// The head of a reward model, which gives each token a number: the value of a sequence is that of its last
// token (Ouyang et al., "Training language models to follow instructions with human feedback", 2022).

#include <cstdint>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// Constant of an op whose h may be a part of the tokens.
struct RewardRows {
  std::int64_t first_token = 0;  ///< token of the first row of h
  static constexpr auto fields() { return std::tuple{Unusual{"first_token", &RewardRows::first_token}}; }
};
/// h [R, d], weight [1, d], token_weights [T] -> nll fp64 [T]: minus the token's weight times its value, so
/// that sequences add up to their values as to log-probabilities; 0 for tokens that have no row.
struct RewardTokens : RewardRows {
  static constexpr std::string_view op = "reward_tokens";
  enum In : std::size_t { h, weight, token_weights };
  enum Out : std::size_t { nll };
  static constexpr Count reads = 3, writes = 1;
};

}  // namespace ztrain
namespace ztrain::program {

/// h, weight, token_weights, dnll fp64 [T], scalars -> dh [R, d], (dweight [1, d]), both times the loss
/// scale.
struct RewardTokensGrad : RewardRows {
  static constexpr std::string_view op = "reward_tokens_grad";
  enum In : std::size_t { h, weight, token_weights, dnll, scalars };
  enum Out : std::size_t { dh, dweight };
  static constexpr Count reads{5, 6}, writes{1, 2};
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple_cat(RewardRows::fields(),
                          std::tuple{Given{accumulate_key, &RewardTokensGrad::accumulate}});
  }
};

}  // namespace ztrain::program
