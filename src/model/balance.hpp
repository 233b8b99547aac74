#pragma once
// Emits the losses that balance the experts of a decoder, and counts of their tokens (Fedus et al., "Switch
// transformers", 2021; Zoph et al., "ST-MoE", 2022). The loss is over the tokens of all layers together, as
// transformers has it.

#include <string>

#include "model/builder.hpp"
#include "model/family.hpp"

namespace ztrain::model {

class Balance {
 public:
  Balance(Builder& builder, const Request& request) : b_(builder), r_(request) {}

  /// Returns the loss weights of the tokens, an input.
  ValueId weights();
  /// Emits the sums of a layer's router. Logits are [T, E] and experts [T, k]; score is as in Routing. Emits
  /// nothing in a graph without a loss.
  void add_layer(const std::string& mlp, ValueId logits, ValueId experts, const std::string& score);
  /// Emits the losses behind the last layer, if they have coefficients.
  ExpertReport finish();

 private:
  bool has_losses() const { return r_.balance_coefficient > 0 || r_.z_coefficient > 0; }

  Builder& b_;
  const Request& r_;
  ValueId weights_ = -1, total_ = -1;
  ExpertReport report_;
};

}  // namespace ztrain::model
