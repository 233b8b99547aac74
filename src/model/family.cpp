#include "model/family.hpp"

#include <array>

#include "base/error.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"

namespace ztrain::model {
namespace {
constexpr std::array<Family, 1> families{{{"llama", llama}}};
}

const Family& find_family(std::string_view name) {
  for (const Family& f : families)
    if (f.name == name) return f;
  std::string known;
  for (const Family& f : families) known += (known.empty() ? "" : ", ") + std::string(f.name);
  fail("'{}' is not a model family; known: {}", name, known);
}

Graph build(const config::Deck& deck, const Request& request) {
  Graph graph = find_family(deck.model.family).emit(deck.model, request);
  add_adapters(graph, deck.lora, static_cast<std::uint64_t>(deck.run.seed));
  mark_trainable(graph, deck.model);
  return graph;
}

double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence) {
  double flops = 0;
  for (const Parameter& p : graph.parameters) {
    const bool looked_up = p.name == "model.embed_tokens.weight" && !dims.tie_word_embeddings;
    if (!looked_up) flops += (p.trainable ? 6.0 : 4.0) * static_cast<double>(elements(p.shape));
  }
  return flops + 6.0 * static_cast<double>(dims.num_hidden_layers) * static_cast<double>(sequence) *
                     static_cast<double>(dims.num_attention_heads * dims.head_dim);
}

}  // namespace ztrain::model
