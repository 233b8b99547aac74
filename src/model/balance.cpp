#include "model/balance.hpp"

namespace ztrain::model {

ValueId Balance::weights() {
  if (weights_ < 0) weights_ = b_.input("weights", DType::f32, {r_.tokens});
  return weights_;
}

void Balance::add_layer(const std::string& mlp, ValueId logits, ValueId experts, const std::string& score) {
  if (r_.objective != Objective::loss) return;
  const Shape shape{2 * b_.shape(logits)[1] + 3};
  const ValueId sums = b_.emit(RouterSums{.score = score}, mlp + ".router_sums", {logits, experts, weights()},
                               shape, b_.statistics());
  report_.sums.push_back(sums);
  if (!has_losses()) return;
  if (r_.balance_over == BalanceOver::layer)
    return add_losses(mlp + ".balance_loss",
                      {1, r_.balance_coefficient / static_cast<double>(b_.shape(experts)[1]),
                       r_.z_coefficient / static_cast<double>(layers_)},
                      {sums});
  const std::string name = mlp + ".router_total";
  // The first total is a copy, because a step reports the sums and may send the total to another stage.
  total_ = total_ < 0 ? b_.emit(Copy{}, name, {sums}, shape, b_.statistics())
                      : b_.emit(Add{}, name, {total_, sums}, shape, b_.statistics());
}

void Balance::add_losses(const std::string& name, const BalanceLoss& loss, std::vector<ValueId> sums) {
  report_.losses.push_back(b_.emit(loss, name, std::move(sums), {2}, DType::f64));
}

ExpertReport Balance::finish() {
  if (total_ >= 0) {
    std::vector<ValueId> sums{total_};
    if (r_.balance_over == BalanceOver::ranks)
      sums.push_back(b_.emit(ShareSums{}, "router_total.all", {total_}, b_.shape(total_), b_.statistics()));
    add_losses("balance_loss", {layers_, r_.balance_coefficient, r_.z_coefficient}, std::move(sums));
  }
  report_.bias_speed = r_.bias_speed;
  return report_;
}

}  // namespace ztrain::model
