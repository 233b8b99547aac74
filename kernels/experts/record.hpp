#pragma once
// Mixtures of experts: T tokens, each of which goes to k of E experts. A row is one token for one of its
// experts; rows lie sorted by expert, and within an expert by token. Products of rows are in kernels/grouped.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/record.hpp"

namespace ztrain {

/// x [T, d], weight [E, d], (bias [E]) -> logits [T, E], workspace. The logits are fp32 (fp64 for fp64) and
/// not rounded to the type of x.
struct RouterLogits : NoConstants {
  static constexpr std::string_view op = "router_logits";
  enum In : std::size_t { x, weight, bias };
  enum Out : std::size_t { logits };
  static constexpr Count reads{2, 3}, writes{1, 2};
};

/// How a router chooses. Scores are softmax or sigmoid of the logits.
struct Routing {
  std::int64_t top_k = 1;
  std::string score = "softmax";  ///< softmax | sigmoid
  bool normalise = false;         ///< whether the chosen scores are divided by their sum
  double scale = 1;               ///< factor of the weights
  /// Groups of E / groups neighbouring experts; only the best top_groups may be chosen from. 0: no groups.
  std::int64_t groups = 0, top_groups = 0;
  /// Score of a group: its largest score (DeepSeek-V2), or the sum of its two largest (DeepSeek-V3).
  std::string group_score = "max";  ///< max | top2
  /// For timing alone: token t goes to experts (t k + j) mod E, whatever the scores are.
  bool balanced = false;
};
/// logits [T, E] (fp32 or fp64), (bias [E], same type) -> weights [T, k] (same type), experts [T, k] int32. A
/// bias is added to the scores when experts are chosen, and not to the weights; it has no gradient. Among
/// equal scores the expert of the lower number is chosen. The choices are in the order of falling scores.
struct Route : Routing {
  static constexpr std::string_view op = "route";
  enum In : std::size_t { logits, bias };
  enum Out : std::size_t { weights, experts };
  static constexpr Count reads{1, 2}, writes = 2;
  static constexpr auto fields() {
    return std::tuple{Given{"top_k", &Route::top_k},
                      Given{"score", &Route::score},
                      Unusual{"normalise", &Route::normalise},
                      Unusual{"scale", &Route::scale},
                      Unusual{"groups", &Route::groups},
                      Unusual{"top_groups", &Route::top_groups},
                      Unusual{"group_score", &Route::group_score},
                      Unusual{"balanced", &Route::balanced}};
  }
};
/// dweights [T, k], logits [T, E], experts [T, k] -> dlogits [T, E].
struct RouteGrad : Routing {
  static constexpr std::string_view op = "route_grad";
  enum In : std::size_t { dweights, logits, experts };
  enum Out : std::size_t { dlogits };
  static constexpr Count reads = 3, writes = 1;
  static constexpr auto fields() {
    return std::tuple{Given{"top_k", &RouteGrad::top_k}, Given{"score", &RouteGrad::score},
                      Unusual{"normalise", &RouteGrad::normalise}, Unusual{"scale", &RouteGrad::scale}};
  }
};

/// experts [T, k] int32 -> slots [T, k] int32, offsets [E + 1] int32, workspace. slots[t, j] is the row of
/// token t for its j-th expert; rows of expert e are [offsets[e], offsets[e + 1]). Rows of one expert are in
/// the order of tokens.
struct SortByExpert {
  static constexpr std::string_view op = "sort_by_expert";
  enum In : std::size_t { experts };
  enum Out : std::size_t { slots, offsets, workspace };
  static constexpr Count reads = 1, writes{2, 3};
  std::int64_t count = 0;   ///< E
  bool own_tokens = false;  ///< each rank of `tensor`, too, sorts the choices of its own tokens alone
  static constexpr auto fields() {
    return std::tuple{Given{"count", &SortByExpert::count}, Unusual{"own_tokens", &SortByExpert::own_tokens}};
  }
};

/// x [T, d], slots [T, k] -> rows [T k, d]: rows[slots[t, j]] = x[t].
struct Permute : NoConstants {
  static constexpr std::string_view op = "permute";
  enum In : std::size_t { x, slots };
  enum Out : std::size_t { rows };
  static constexpr Count reads = 2, writes = 1;
};
/// drows [T k, d], slots [T, k], (dx) -> dx [T, d]: the sum over j of drows[slots[t, j]], added in the order
/// of j in fp32 (fp64 for fp64).
struct PermuteGrad {
  static constexpr std::string_view op = "permute_grad";
  enum In : std::size_t { drows, slots };
  enum Out : std::size_t { dx };
  static constexpr Count reads{2, 3}, writes = 1;
  bool accumulate = false;
  static constexpr auto fields() { return std::tuple{Given{accumulate_key, &PermuteGrad::accumulate}}; }
};

/// rows [T k, d], slots [T, k], weights [T, k] (fp32 or fp64) -> y [T, d]: the sum over j of
/// weights[t, j] rows[slots[t, j]], added in the order of j in fp32 (fp64 for fp64) and rounded once.
struct Combine : NoConstants {
  static constexpr std::string_view op = "combine";
  enum In : std::size_t { rows, slots, weights };
  enum Out : std::size_t { y };
  static constexpr Count reads = 3, writes = 1;
};
/// dy [T, d], rows [T k, d], slots, weights -> drows [T k, d], dweights [T, k]: drows[slots[t, j]] =
/// weights[t, j] dy[t], dweights[t, j] = dy[t] . rows[slots[t, j]].
struct CombineGrad : NoConstants {
  static constexpr std::string_view op = "combine_grad";
  enum In : std::size_t { dy, rows, slots, weights };
  enum Out : std::size_t { drows, dweights };
  static constexpr Count reads = 4, writes = 2;
};

/// x [T, d], gate [T, 1] -> y [T, d]: sigmoid(gate[t]) x[t] (the shared expert of Qwen2-MoE).
struct GateRows : NoConstants {
  static constexpr std::string_view op = "gate_rows";
  enum In : std::size_t { x, gate };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
};
/// dy, x, gate -> dx [T, d], dgate [T, 1].
struct GateRowsGrad : NoConstants {
  static constexpr std::string_view op = "gate_rows_grad";
  enum In : std::size_t { dy, x, gate };
  enum Out : std::size_t { dx, dgate };
  static constexpr Count reads = 3, writes = 2;
};

/// logits [T, E], experts [T, k], weights [T] (loss weights of the tokens) -> sums [2 E + 3] (fp32 or fp64),
/// workspace: tokens that chose each expert, the sum of each expert's score over the tokens (sigmoid scores
/// are divided by their sum over E), the number of tokens, the sum of logsumexp(logits)^2, the sum of the
/// loss weights. Weights may begin with those of other ranks' tokens.
struct RouterSums {
  static constexpr std::string_view op = "router_sums";
  enum In : std::size_t { logits, experts, weights };
  enum Out : std::size_t { sums, workspace };
  static constexpr Count reads = 3, writes{1, 2};
  std::string score = "softmax";
  std::int64_t first_weight = 0;  ///< number of the first token's weight
  std::int64_t padding = 0;       ///< last tokens, which do not count
  static constexpr auto fields() {
    return std::tuple{Given{"score", &RouterSums::score}, Unusual{"first_weight", &RouterSums::first_weight},
                      Unusual{"padding", &RouterSums::padding}};
  }
};
/// dsums [2 E + 3], logits [T, E] -> dlogits [T, E], through the sums of scores and of logsumexp^2.
struct RouterSumsGrad {
  static constexpr std::string_view op = "router_sums_grad";
  enum In : std::size_t { dsums, logits };
  enum Out : std::size_t { dlogits };
  static constexpr Count reads = 2, writes = 1;
  std::string score = "softmax";
  std::int64_t padding = 0;  ///< last tokens, whose gradient is 0
  static constexpr auto fields() {
    return std::tuple{Given{"score", &RouterSumsGrad::score}, Unusual{"padding", &RouterSumsGrad::padding}};
  }
};

/// A node: sums [2 E + 3] -> their sum over the micro-batches that ranks with other sequences have at once.
struct ShareSums : OneToOne {
  static constexpr std::string_view op = "share_sums";
};
/// sums [2 E + 3] -> the same numbers, as this rank's term of the sum that ShareSums makes.
struct OwnSums : OneToOne {
  static constexpr std::string_view op = "own_sums";
};

/// Constants of the balance loss and of the z-loss.
struct BalanceConstants {
  std::int64_t layers = 1;
  double balance = 0, z = 0;  ///< coefficients
  static constexpr auto fields() {
    return std::tuple{Given{"layers", &BalanceConstants::layers},
                      Given{"balance", &BalanceConstants::balance}, Given{"z", &BalanceConstants::z}};
  }
};
/// sums [2 E + 3], (all [2 E + 3]) -> losses [2], fp64. `sums` is the sum of RouterSums of `layers` layers.
/// The losses are the terms of the balance loss and of the z-loss in the sum of weighted losses: coefficient
/// x loss x the micro-batch's loss weights. The balance loss is E sum_e f_e P_e, as in transformers, with
/// averages f and P over the tokens of all layers (Fedus et al., "Switch transformers", 2021). The z-loss is
/// the mean of logsumexp^2 (Zoph et al., "ST-MoE", 2022). `all` has the sums of a larger micro-batch of which
/// this one is a part; the losses are then this part's terms of the larger one's losses.
struct BalanceLoss : BalanceConstants {
  static constexpr std::string_view op = "balance_loss";
  enum In : std::size_t { sums, all };
  enum Out : std::size_t { losses };
  static constexpr Count reads{1, 2}, writes = 1;
};
/// sums, scalars, (all) -> losses [2], dsums [2 E + 3], which is multiplied by the loss scale.
struct BalanceLossGrad : BalanceConstants {
  static constexpr std::string_view op = "balance_loss_grad";
  enum In : std::size_t { sums, scalars, all };
  enum Out : std::size_t { losses, dsums };
  static constexpr Count reads{2, 3}, writes = 2;
};

}  // namespace ztrain
