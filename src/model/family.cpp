#include "model/family.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/architectures.hpp"
#include "model/attention_span.hpp"

namespace ztrain::model {
namespace {
constexpr Family families[] = {
    {"llama", decoder, decoder_tensor_plan},
    {"mistral", decoder, decoder_tensor_plan},
    {"qwen2", decoder, decoder_tensor_plan},
    {"qwen3", decoder, decoder_tensor_plan},
};
}

const Family& find_family(std::string_view name) {
  for (const Family& f : families)
    if (f.name == name) return f;
  std::string known;
  for (const Family& f : families) known += (known.empty() ? "" : ", ") + std::string(f.name);
  fail("'{}' is not a model family; known: {}", name, known);
}

Attention decoder_attention(const config::Model& dims, std::int64_t layer) {
  return {.heads = dims.num_attention_heads,
          .kv_heads = dims.num_key_value_heads,
          .window = layer < dims.full_attention_layers ? 0 : dims.sliding_window};
}

double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence) {
  int first = static_cast<int>(graph.units.size());  // block with something trained
  for (const Parameter& p : graph.parameters)
    if (p.trainable) first = std::min(first, p.unit);
  double flops = 0;
  for (const Parameter& p : graph.parameters) {
    const bool looked_up = p.name == config::embedding_weight && !dims.tie_word_embeddings;
    const double passes = p.trainable ? 6 : p.unit >= first ? 4 : 2;
    if (!looked_up) flops += passes * static_cast<double>(elements(p.shape));
  }
  const Family& family = find_family(dims.family);
  double attended = 0;  // per token, summed over layers and passes; the embedding is block 0
  for (std::int64_t layer = 0; layer < dims.num_hidden_layers; ++layer)
    attended +=
        (layer + 1 >= first ? 12.0 : 4.0) * attention_span(sequence, family.attention(dims, layer).window);
  return flops + attended * static_cast<double>(dims.num_attention_heads * dims.head_dim);
}

}  // namespace ztrain::model
