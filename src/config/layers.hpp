#pragma once
// Facts of single layers and heads that follow from the dims. Lists are repeated over the layers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

// Kinds of layers in Model::layer_types.
inline constexpr const char *full_attention = "full_attention", *sliding_attention = "sliding_attention";

/// Returns the list's entry for a layer; `other` if the list is empty.
template <class T>
T at_layer(const std::vector<T>& list, std::int64_t layer, T other) {
  return list.empty() ? other : list[static_cast<std::size_t>(layer) % list.size()];
}

/// Returns full_attention or sliding_attention.
inline std::string layer_type(const Model& m, std::int64_t layer) {
  if (m.sliding_window == 0) return full_attention;
  const char* unlisted = layer < m.full_attention_layers ? full_attention : sliding_attention;
  return at_layer<std::string>(m.layer_types, layer, unlisted);
}

/// Returns whether a layer has the rotary embedding, as far as Model::no_rope_layers says it.
inline bool has_rope(const Model& m, std::int64_t layer) {
  return at_layer(m.no_rope_layers, layer, 1.0) != 0;
}

/// Returns whether keys and values are made of a latent (DeepSeek-V2).
inline bool is_latent(const Model& m) {
  return m.kv_lora_rank > 0;
}

/// Returns the width of a head that follows from the other dims.
inline std::int64_t derived_head_dim(const Model& m) {
  if (is_latent(m)) return m.qk_nope_head_dim + m.qk_rope_head_dim;
  return m.num_attention_heads == 0 ? 0 : m.hidden_size / m.num_attention_heads;
}

/// Returns whether the feed-forward of a layer is a mixture of experts.
inline bool has_experts(const Model& m, std::int64_t layer) {
  return m.num_experts > 0 && layer >= m.first_k_dense_replace && (layer + 1) % m.decoder_sparse_step == 0 &&
         std::ranges::find(m.mlp_only_layers, static_cast<double>(layer)) == m.mlp_only_layers.end();
}

/// Returns the number of layers with experts.
inline std::int64_t layers_with_experts(const Model& m) {
  std::int64_t layers = 0;
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer) layers += has_experts(m, layer) ? 1 : 0;
  return layers;
}

/// Returns the width of the expert that all tokens go to; 0: there is none.
inline std::int64_t shared_expert_width(const Model& m) {
  return m.shared_expert_intermediate_size > 0 ? m.shared_expert_intermediate_size
                                               : m.n_shared_experts * m.moe_intermediate_size;
}

/// Returns how many elements of a head are turned.
inline std::int64_t rotary_width(const Model& m) {
  if (is_latent(m)) return m.qk_rope_head_dim;
  return static_cast<std::int64_t>(static_cast<double>(m.head_dim) * m.partial_rotary_factor);
}

}  // namespace ztrain::config
