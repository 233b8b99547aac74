#pragma once
// How a router sends tokens to experts: logits' bias, the choice of experts and its gradient, and the order
// of rows by expert. A is float or double. Only what is named `experts` holds numbers of experts.

#include <cstdint>
#include <string_view>

#include "base/dtype.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

enum class RouterScore : std::uint8_t { softmax, sigmoid };
/// Throws Error if there is no such score.
RouterScore router_score(std::string_view name);

/// Numbers that the kernels take at most.
inline constexpr std::int64_t most_experts = 512, most_top_k = 32, most_expert_groups = 32;

/// The constants of Routing (kernels/experts/record.hpp).
struct RouteOptions {
  std::int64_t top_k = 1;
  RouterScore score = RouterScore::softmax;
  bool normalise = false;
  bool top_two = false;  ///< the score of a group is the sum of its two largest
  bool balanced = false;
  double scale = 1;
  std::int64_t groups = 0, top_groups = 0;
};

/// Computes logits[t, e] += bias[e].
template <class T>
void add_router_bias(Exec& exec, Vector<const T> bias, Matrix<acc_t<T>> logits);

/// Chooses experts [T, k] and their weights [T, k]. bias may have no data. A NaN counts as the largest logit,
/// so that it reaches the weights; experts are in [0, E) whatever the logits are. Sigmoid scores are
/// normalised by their sum + 1e-20 (DeepSeek-V3). Throws Error if k experts cannot be chosen.
template <class A>
void route(Exec& exec, const RouteOptions& options, Matrix<const A> logits, Vector<const A> bias,
           Matrix<A> weights, Matrix<std::int32_t> experts);

/// Computes dlogits [T, E] of dweights [T, k]; the choice itself has no gradient.
template <class A>
void route_backward(Exec& exec, const RouteOptions& options, Matrix<const A> dweights, Matrix<const A> logits,
                    Matrix<const std::int32_t> experts, Matrix<A> dlogits);

/// Computes slots [T k] of experts [T k], and offsets [E + 1]. workspace:
/// sort_by_expert_workspace_bytes(T k, E, target) bytes.
void sort_by_expert(Exec& exec, Vector<const std::int32_t> experts, Vector<std::int32_t> slots,
                    Vector<std::int32_t> offsets, void* workspace);

}  // namespace ztrain::kernels
