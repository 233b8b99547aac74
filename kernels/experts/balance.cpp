#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/experts/balance_rows.hpp"

namespace ztrain::kernels {
namespace {

/// Returns E of sums [2 E + 3].
std::int64_t experts_of(std::int64_t sums) {
  REQUIRE(sums >= 5 && sums % 2 == 1, "a router has no {} sums", sums);
  return (sums - 3) / 2;
}

/// Outputs of a balance loss, and the scalars that dsums need; without dsums they may be null.
template <class A>
struct BalanceResults {
  const StepScalars* scalars;
  Vector<double> losses;
  Vector<A> dsums;
};

template <class A>
void run_balance(Exec& exec, const BalanceCoefficients& c, BalanceSums<A> sums, BalanceResults<A> results) {
  REQUIRE(results.losses.count == 2 && c.layers >= 1 && sums.own.count == sums.all.count,
          "balance loss: {} losses of {} layers, of {} sums and {} of all", results.losses.count, c.layers,
          sums.own.count, sums.all.count);
  for_shared_rows(exec, 1, 256,
                  BalanceTeam<A>{c, experts_of(sums.own.count), sums.own.data, sums.all.data, results.scalars,
                                 results.losses.data, results.dsums.data});
}

}  // namespace

template <class A>
void router_sums(Exec& exec, RouterScore score, Matrix<const A> logits, Matrix<const std::int32_t> experts,
                 Vector<const float> weights, Vector<A> sums, void* workspace) {
  const std::int64_t tokens = logits.rows, count = logits.cols, width = 2 * count + 3;
  REQUIRE(experts.rows == tokens && weights.count == tokens && sums.count == width && count <= most_experts,
          "router sums: logits are [{}, {}], experts [{}, {}], weights [{}] and sums [{}]", tokens, count,
          experts.rows, experts.cols, weights.count, sums.count);
  const std::int64_t block = router_sums_block(tokens, build_target()), blocks = ceil_div(tokens, block);
  A* const partials = static_cast<A*>(workspace);
  for_warp_rows(exec, blocks,
                RouterSumsBlock<A, router_lanes>{score, tokens, block, count, experts.cols, logits.data,
                                                 experts.data, weights.data, partials});
  for_rows(
      exec, width, KOKKOS_LAMBDA(const std::int64_t column) {
        double sum = 0;
        for (std::int64_t i = 0; i < blocks; ++i) sum += static_cast<double>(partials[i * width + column]);
        sums.data[column] = static_cast<A>(sum);
      });
}

template <class A>
void router_sums_backward(Exec& exec, RouterScore score, Vector<const A> dsums, Matrix<const A> logits,
                          Matrix<A> dlogits) {
  REQUIRE(dsums.count == 2 * logits.cols + 3 && dlogits.rows == logits.rows && dlogits.cols == logits.cols,
          "router sums backward: logits are [{}, {}], dlogits [{}, {}] and dsums [{}]", logits.rows,
          logits.cols, dlogits.rows, dlogits.cols, dsums.count);
  for_warp_rows(exec, logits.rows,
                RouterSumsGradRow<A>{score, logits.cols, dsums.data, logits.data, dlogits.data});
}

template <class A>
void balance_loss(Exec& exec, const BalanceCoefficients& coefficients, BalanceSums<A> sums,
                  Vector<double> losses) {
  run_balance(exec, coefficients, sums, {nullptr, losses, {}});
}

template <class A>
void balance_loss_with_gradient(Exec& exec, const BalanceCoefficients& coefficients, BalanceSums<A> sums,
                                const StepScalars* scalars, Vector<double> losses, Vector<A> dsums) {
  REQUIRE(dsums.count == sums.own.count, "balance loss: {} gradients of {} sums", dsums.count,
          sums.own.count);
  run_balance(exec, coefficients, sums, {scalars, losses, dsums});
}

ZTRAIN_INSTANCE(router_sums, float)
ZTRAIN_INSTANCE(router_sums, double)
ZTRAIN_INSTANCE(router_sums_backward, float)
ZTRAIN_INSTANCE(router_sums_backward, double)
ZTRAIN_INSTANCE(balance_loss, float)
ZTRAIN_INSTANCE(balance_loss, double)
ZTRAIN_INSTANCE(balance_loss_with_gradient, float)
ZTRAIN_INSTANCE(balance_loss_with_gradient, double)

}  // namespace ztrain::kernels
