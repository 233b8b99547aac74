#include "model/family.hpp"

#include <array>

#include "base/error.hpp"
#include "model/attention_span.hpp"
#include "model/lora.hpp"
#include "model/trainable.hpp"

namespace ztrain::model {
namespace {
constexpr std::array<Family, 4> families{
    {{"llama", decoder}, {"mistral", decoder}, {"qwen2", decoder}, {"qwen3", decoder}}};
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

std::int64_t window_of(const config::Model& dims, std::int64_t layer) {
  return layer < dims.full_attention_layers ? 0 : dims.sliding_window;
}

double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence) {
  double flops = 0;
  for (const Parameter& p : graph.parameters) {
    const bool looked_up = p.name == "model.embed_tokens.weight" && !dims.tie_word_embeddings;
    if (!looked_up) flops += (p.trainable ? 6.0 : 4.0) * static_cast<double>(elements(p.shape));
  }
  double attended = 0;  // per token, summed over the layers
  for (std::int64_t layer = 0; layer < dims.num_hidden_layers; ++layer)
    attended += attention_span(sequence, window_of(dims, layer));
  return flops + 12.0 * attended * static_cast<double>(dims.num_attention_heads * dims.head_dim);
}

}  // namespace ztrain::model
