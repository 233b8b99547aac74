#include "base/error.hpp"
#include "kernels/experts/router_rows.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {
namespace {

void check_route(const RouteOptions& o, std::int64_t experts) {
  REQUIRE(experts >= 1 && experts <= most_experts && o.top_k >= 1 && o.top_k <= most_top_k,
          "routing to {} of {} experts: at most {} of {} are possible", o.top_k, experts, most_top_k,
          most_experts);
  REQUIRE(o.top_k <= experts, "routing to {} of {} experts", o.top_k, experts);
  if (o.groups == 0) return;
  REQUIRE(o.groups > 0 && o.groups <= most_expert_groups && experts % o.groups == 0 && o.top_groups >= 1 &&
              o.top_groups <= o.groups && o.top_k <= o.top_groups * (experts / o.groups) &&
              (!o.top_two || experts / o.groups >= 2),
          "routing to {} of {} experts in {} of {} groups", o.top_k, experts, o.top_groups, o.groups);
}

}  // namespace

RouterScore router_score(std::string_view name) {
  if (name == "softmax") return RouterScore::softmax;
  if (name == "sigmoid") return RouterScore::sigmoid;
  fail("'{}' is no score of a router; known: softmax, sigmoid", name);
}

template <class T>
void add_router_bias(Exec& exec, Vector<const T> bias, Matrix<acc_t<T>> logits) {
  REQUIRE(bias.count == logits.cols, "router: {} biases for {} experts", bias.count, logits.cols);
  for_row_pieces<pack_of<acc_t<T>>>(
      exec, logits.rows, logits.cols, KOKKOS_LAMBDA(const std::int64_t row, const PieceOf<acc_t<T>> p) {
        const T* const added = bias.data + p.begin;
        acc_t<T>* const to = logits.data + row * logits.cols + p.begin;
        for (std::int64_t i = 0; i < p.length; ++i) to[i] += load(added[i]);
      });
}

template <class A>
void route(Exec& exec, const RouteOptions& options, Matrix<const A> logits, Vector<const A> bias,
           Matrix<A> weights, Matrix<std::int32_t> experts) {
  check_route(options, logits.cols);
  REQUIRE(weights.rows == logits.rows && weights.cols == options.top_k && experts.rows == logits.rows &&
              experts.cols == options.top_k && (bias.data == nullptr || bias.count == logits.cols),
          "route: logits are [{}, {}], but weights [{}, {}], experts [{}, {}], bias [{}]", logits.rows,
          logits.cols, weights.rows, weights.cols, experts.rows, experts.cols, bias.count);
  for_warp_rows(
      exec, logits.rows,
      RouteRow<A, router_lanes>{options, logits.cols, logits.data, bias.data, weights.data, experts.data});
}

template <class A>
void route_backward(Exec& exec, const RouteOptions& options, Matrix<const A> dweights, Matrix<const A> logits,
                    Matrix<const std::int32_t> experts, Matrix<A> dlogits) {
  REQUIRE(dweights.rows == logits.rows && dweights.cols == options.top_k && experts.rows == logits.rows &&
              experts.cols == options.top_k && dlogits.rows == logits.rows && dlogits.cols == logits.cols,
          "route backward: logits are [{}, {}], but dweights [{}, {}], experts [{}, {}], dlogits [{}, {}]",
          logits.rows, logits.cols, dweights.rows, dweights.cols, experts.rows, experts.cols, dlogits.rows,
          dlogits.cols);
  for_warp_rows(
      exec, logits.rows,
      RouteGradRow<A>{options, logits.cols, dweights.data, logits.data, experts.data, dlogits.data});
}

ZTRAIN_INSTANCES(add_router_bias)
ZTRAIN_INSTANCE(route, float)
ZTRAIN_INSTANCE(route, double)
ZTRAIN_INSTANCE(route_backward, float)
ZTRAIN_INSTANCE(route_backward, double)

}  // namespace ztrain::kernels
