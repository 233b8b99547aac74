#include "model/family.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "config/architectures.hpp"
#include "config/hf/reward_model.hpp"
#include "config/layers.hpp"
#include "model/attention_span.hpp"

namespace ztrain::model {
namespace {

/// Returns the factor of scores; 0 stands for 1 / sqrt(head_dim). Latent attention that is stretched by yarn
/// makes them larger, where others make sines and cosines larger.
double scale_of_scores(const config::Model& dims) {
  if (config::is_latent(dims) && dims.rope_scaling == "yarn" && dims.rope_mscale_all_dim > 0) {
    const double size = 0.1 * dims.rope_mscale_all_dim * std::log(dims.rope_factor) + 1;
    return size * size / std::sqrt(static_cast<double>(dims.head_dim));
  }
  if (dims.attention_multiplier > 0) return dims.attention_multiplier;
  return dims.query_pre_attn_scalar > 0 ? 1 / std::sqrt(dims.query_pre_attn_scalar) : 0;
}

/// Returns the layout of blocks, which all layers share.
std::vector<std::int64_t> layout_of(const Graph& graph) {
  const auto node = std::ranges::find(graph.nodes, Attention::op, &Node::op);
  return node == graph.nodes.end() ? std::vector<std::int64_t>{}
                                   : record_of<Attention>(node->attributes).layout;
}

}  // namespace

const Family& find_family(std::string_view name) {
  static const std::vector<Family> families{};
  static constexpr Family standard{"", decoder, decoder_tensor_plan};
  for (const Family& f : families)
    if (f.name == name) return f;
  static_cast<void>(config::find_architecture(name));
  return standard;
}

Attention decoder_attention(const config::Model& dims, std::int64_t layer) {
  const bool learned = config::find_architecture(dims.family).style.learned_positions,
             windowed = config::layer_type(dims, layer) == config::sliding_attention;
  return {.heads = dims.num_attention_heads,
          .kv_heads = dims.num_key_value_heads,
          .window = windowed ? dims.sliding_window : 0,
          .scale = scale_of_scores(dims),
          .soft_cap = dims.attn_logit_softcapping,
          .rotary = config::has_rope(dims, layer) && !learned};
}

double flops_per_token(const config::Model& dims, const Graph& graph, std::int64_t sequence) {
  int first = static_cast<int>(graph.units.size());  // block with something trained
  for (const Parameter& p : graph.parameters)
    if (p.trainable) first = std::min(first, p.unit);
  const bool scores = std::ranges::count(graph.parameters, config::score_weight, &Parameter::name) > 0;
  double flops = 0;
  for (const Parameter& p : graph.parameters) {
    const bool looked_up = (p.name == config::embedding_weight && (!dims.tie_word_embeddings || scores)) ||
                           p.name == config::positions_weight;
    const double passes = p.trainable ? 6 : p.unit >= first ? 4 : 2;
    if (!looked_up) flops += passes * p.share_of_token * static_cast<double>(elements(p.shape));
  }
  const Family& family = find_family(dims.family);
  double attended = 0;  // per token, summed over layers and passes; the embedding is block 0
  const std::vector<std::int64_t> layout = layout_of(graph);
  for (std::int64_t layer = 0; layer < dims.num_hidden_layers; ++layer) {
    Attention attention = family.attention(dims, layer);
    attention.layout = layout;
    attended += (layer + 1 >= first ? 12.0 : 4.0) * attention_span(sequence, attention);
  }
  const std::int64_t values = config::is_latent(dims) ? dims.v_head_dim : dims.head_dim;
  return flops + attended * static_cast<double>(dims.num_attention_heads * (dims.head_dim + values)) / 2;
}

}  // namespace ztrain::model
