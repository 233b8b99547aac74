#include "model/balance.hpp"

#include "kernels/experts/record.hpp"

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
  const std::string name = mlp + ".router_total";
  // The first is a copy: it may be sent to another stage, and what a step reports stays.
  total_ = total_ < 0 ? b_.emit(Copy{}, name, {sums}, shape, b_.statistics())
                      : b_.emit(Add{}, name, {total_, sums}, shape, b_.statistics());
}

ExpertReport Balance::finish() {
  if (total_ >= 0)
    report_.losses = b_.emit(BalanceLoss{std::ssize(report_.sums), r_.balance_coefficient, r_.z_coefficient},
                             "balance_loss", {total_}, {2}, DType::f64);
  return report_;
}

}  // namespace ztrain::model
