#pragma once
// Losses that keep a router's choices even. A is float or double, the type of the logits.

#include <cstdint>

#include "kernel_interface/step_scalars.hpp"
#include "kernel_interface/view.hpp"
#include "kernels/experts/routing.hpp"

namespace ztrain::kernels {

/// Computes sums [2 E + 3] as RouterSums says (kernels/experts/record.hpp). logits: [T, E], experts: [T, k],
/// weights: [T]. workspace: router_sums_workspace_bytes(T, E, dtype_of<A>(), target) bytes.
template <class A>
void router_sums(Exec& exec, RouterScore score, Matrix<const A> logits, Matrix<const std::int32_t> experts,
                 Vector<const float> weights, Vector<A> sums, void* workspace);

/// Computes dlogits [T, E] of dsums [2 E + 3], of which the sums of scores and that of squares count.
template <class A>
void router_sums_backward(Exec& exec, RouterScore score, Vector<const A> dsums, Matrix<const A> logits,
                          Matrix<A> dlogits);

/// The constants of BalanceLoss.
struct BalanceCoefficients {
  std::int64_t layers = 1;
  double balance = 0, z = 0;
};

/// Sums [2 E + 3] of routers: own is of this micro-batch, and all of the larger one that it is a part of. all
/// equals own if there is no larger one.
template <class A>
struct BalanceSums {
  Vector<const A> own, all;
};

/// Writes losses [2]: w / layers x coefficient x (E sum_e c_e s_e / n^2, z / n). Scores s and squares z are
/// from sums.own; choices c, tokens n and weights w are from sums.all.
template <class A>
void balance_loss(Exec& exec, const BalanceCoefficients& coefficients, BalanceSums<A> sums,
                  Vector<double> losses);

/// Writes the same losses, and dsums [2 E + 3] times the loss scale.
template <class A>
void balance_loss_with_gradient(Exec& exec, const BalanceCoefficients& coefficients, BalanceSums<A> sums,
                                const StepScalars* scalars, Vector<double> losses, Vector<A> dsums);

}  // namespace ztrain::kernels
