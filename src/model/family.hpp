#pragma once
// Model families: pure functions from dims to a Graph. What a family's dims may be, what its blocks compute
// and what Hugging Face calls it is its row in config/architectures.hpp.

#include <functional>
#include <string_view>
#include <vector>

#include "config/deck.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/preference/record.hpp"
#include "model/graph.hpp"
#include "model/tensor_plan.hpp"

namespace ztrain::model {

enum class Objective : std::uint8_t {
  loss,   ///< Graph::result is the summed loss of the micro-batch
  logits  ///< Graph::result is the logits [1, vocabulary] of the token at input `index` (int32 [1])
};

/// Tokens over which a loss balances experts. router_sums are of one micro-batch.
enum class BalanceOver : std::uint8_t {
  micro_batch,  ///< those of all layers together, as transformers has it
  layer,        ///< those of each layer, whose losses add up (DeepSeek-V2, section 2.2.3)
  ranks         ///< those of all layers, and of the micro-batches that all ranks have at once
};

/// A loss on pairs of answers, in place of that of each token.
struct PairRequest {
  std::int64_t slots = 0;  ///< sequences that a micro-batch has at most; 0: the loss is that of tokens
  PreferenceConstants loss{};
};

/// A loss against a teacher.
struct DistillationRequest {
  std::int64_t words = 0;  ///< of a token that are learned from; 0: none
  double share = 0;        ///< of the divergence in the loss
};

/// What a family needs to know beside the dims.
struct Request {
  std::int64_t tokens = 0;  ///< of the micro-batch: sequences x sequence length
  DType compute = DType::f32;
  Objective objective = Objective::loss;
  std::int64_t sequence = 0;  ///< tokens of each of its sequences; 0: not known
  std::int64_t longest = 0;   ///< largest position + 1 that any of its sequences reaches; 0: as sequence
  std::vector<std::int64_t> layout{};  ///< Attention::layout
  std::int64_t documents = 0;          ///< in it at most; 0: no limit is known
  bool deterministic = true;           ///< attention gives the same bits each time
  bool balanced_routing = false;       ///< tokens go to all experts in turn, whatever the router says
  double balance_coefficient = 0;      ///< of the loss that balances experts
  BalanceOver balance_over = BalanceOver::micro_batch;
  double bias_speed = 0;     ///< experts.bias_update_speed
  double z_coefficient = 0;  ///< of the z-loss of routers
  PairRequest pairs{};
  DistillationRequest distillation{};
  std::int64_t likelihoods = 0;  ///< words of a token whose likelihoods are told beside the loss; 0: none
  double label_smoothing = 0, head_z_loss = 0;  ///< of the head's loss
};

/// Returns the attention of a layer, as far as dims say it: heads, window, scale and cap of the scores, and
/// whether positions turn queries and keys.
Attention decoder_attention(const config::Model& dims, std::int64_t layer);

struct Family {
  std::string_view name;
  Graph (*emit)(const config::Model& dims, const Request& request);
  TensorPlan (*tensor_plan)(const config::Model& dims, int ranks);
  /// Returns a layer's attention: its scale, cap and window, and whether positions turn queries and keys.
  Attention (*attention)(const config::Model& dims, std::int64_t layer) = decoder_attention;
};

/// Returns the decoder for a family that has no row of its own. Throws Error naming the known families.
const Family& find_family(std::string_view name);

/// The decoder that all families are: embedding, blocks of attention and feed-forward with norms before or
/// behind them, head. Its architecture's BlockStyle says which norms and activation a block has; the dims say
/// the rest (config::Model). Touvron et al., "LLaMA", 2023; Jiang et al., "Mistral 7B", 2023; Gemma Team,
/// "Gemma 2", 2024, and "Gemma 3", 2025; OLMo Team, "2 OLMo 2 Furious", 2025; Henry et al., "Query-key
/// normalization", 2020; Radford et al., "Language models are unsupervised multitask learners", 2019.
Graph decoder(const config::Model& dims, const Request& request);

/// Training FLOPs per token: 6 (parameters - input embedding - parameters of experts that the token does not
/// go to) + 12 layers * attention_span * width of the queries (causal attention). A tied embedding counts
/// once, as the head. Frozen parameters count 4, since their gradient is not computed; below the first block
/// with a trained one, where backward ends, they count 2, and attention 4 in place of 12. graph: after the
/// passes over it.
double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence);

}  // namespace ztrain::model
