#pragma once
// Model families. A family is one file with one pure function from dims to a Graph, and one row in the table.

#include <functional>
#include <string_view>

#include "config/deck.hpp"
#include "model/graph.hpp"

namespace ztrain::model {

enum class Objective : std::uint8_t {
  loss,   ///< Graph::result is the summed loss of the micro-batch
  logits  ///< Graph::result is the logits [1, vocabulary] of the token at input `index` (int32 [1])
};

/// What a family needs to know beside the dims.
struct Request {
  std::int64_t tokens = 0;  ///< of the micro-batch: sequences x sequence length
  DType compute = DType::f32;
  Objective objective = Objective::loss;
};

struct Family {
  std::string_view name;
  Graph (*emit)(const config::Model& dims, const Request& request);
};

/// Throws Error naming the known families.
const Family& find_family(std::string_view name);

/// Llama: RMSNorm, RoPE (with Llama 3 scaling), grouped-query attention, SwiGLU, tied or untied head,
/// optional bias on q, k and v. Touvron et al., "LLaMA", 2023; the Llama 3 herd of models, 2024.
Graph llama(const config::Model& dims, const Request& request);

/// The graph of a deck's model: its family's, with the deck's adapters, and its parameters marked as
/// trainable or frozen. What is trained and what is generated from a checkpoint is this.
Graph build(const config::Deck& deck, const Request& request);

/// Training FLOPs per token: 6 (parameters - input embedding) + 6 layers * sequence * hidden (causal
/// attention). A tied embedding counts once, as the head. Frozen parameters count 4: their gradient is not
/// computed.
double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence);

}  // namespace ztrain::model
