#pragma once
// The feed-forward of a decoder's block: dense, or a mixture of experts (Shazeer et al., "Outrageously large
// neural networks", 2017; Fedus et al., "Switch transformers", 2021).

#include <string>

#include "config/architectures.hpp"
#include "model/balance.hpp"
#include "model/builder.hpp"
#include "model/family.hpp"
#include "model/projections.hpp"

namespace ztrain::model {

class FeedForward {
 public:
  FeedForward(Builder& builder, const config::Model& dims, const Request& request, Balance& balance)
      : b_(builder),
        m_(dims),
        r_(request),
        balance_(balance),
        style_(config::find_architecture(dims.family).style),
        linear_(builder, dims.initializer_range) {}

  /// Emits the feed-forward of a layer. mlp is the name of its module; x [T, d] is normalised.
  ValueId emit(const std::string& mlp, std::int64_t layer, ValueId x);

 private:
  /// Outputs of a router: weights [T, k] and slots [T, k] of the rows, and offsets [E + 1] of the experts.
  struct Routed {
    ValueId weights, slots, offsets;
  };

  ValueId dense(const std::string& mlp, ValueId x, std::int64_t width);
  ValueId activated(const std::string& mlp, ValueId up);
  ValueId mixture(const std::string& mlp, ValueId x);
  /// Makes the bias of scores that only the choice of experts reads.
  ValueId selection_bias(const std::string& gate);
  Routed route(const std::string& mlp, ValueId x);
  ValueId expert_layer(const std::string& name, ValueId rows, ValueId offsets, ValueId weight);
  ValueId expert_weight(const std::string& name, std::int64_t out, std::int64_t in);
  ValueId shared_expert(const std::string& mlp, ValueId x);

  Builder& b_;
  const config::Model& m_;
  const Request& r_;
  Balance& balance_;
  const config::BlockStyle& style_;
  Projections linear_;
};

}  // namespace ztrain::model
