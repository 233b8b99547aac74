#include "model/family.hpp"

#include <array>

#include "base/error.hpp"

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

double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence) {
  double n = 0;
  for (const Parameter& p : graph.parameters) n += static_cast<double>(elements(p.shape));
  if (!dims.tie_word_embeddings) n -= static_cast<double>(dims.vocab_size * dims.hidden_size);
  return 6.0 * n + 6.0 * static_cast<double>(dims.num_hidden_layers) * static_cast<double>(sequence) *
                       static_cast<double>(dims.num_attention_heads * dims.head_dim);
}

}  // namespace ztrain::model
