#pragma once
// Emits the losses that balance the experts of a decoder, and counts of their tokens (Fedus et al., "Switch
// transformers", 2021; Zoph et al., "ST-MoE", 2022; Qiu et al., "Demons in the detail", 2025). BalanceOver
// says over which tokens.

#include <string>

#include "kernels/experts/record.hpp"
#include "model/builder.hpp"
#include "model/family.hpp"

namespace ztrain::model {

class Balance {
 public:
  /// layers: the number of layers with experts.
  Balance(Builder& builder, const Request& request, std::int64_t layers)
      : b_(builder), r_(request), layers_(layers) {}

  /// Returns the loss weights of the tokens, an input.
  ValueId weights();
  /// Emits the sums of a layer's router. Logits are [T, E] and experts [T, k]; score is as in Routing. Emits
  /// nothing in a graph without a loss.
  void add_layer(const std::string& mlp, ValueId logits, ValueId experts, const std::string& score);
  /// Emits the losses behind the last layer, if a coefficient is above 0 and the losses are not those of each
  /// layer.
  ExpertReport finish();

 private:
  bool has_losses() const { return r_.balance_coefficient > 0 || r_.z_coefficient > 0; }

  /// Emits the balance loss and the z-loss of `sums`: those of a layer or of all, then perhaps all ranks'.
  void add_losses(const std::string& name, const BalanceLoss& loss, std::vector<ValueId> sums);

  Builder& b_;
  const Request& r_;
  std::int64_t layers_;
  ValueId weights_ = -1, total_ = -1;
  ExpertReport report_;
};

}  // namespace ztrain::model
