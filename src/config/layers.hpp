#pragma once
// Facts of single layers and heads that follow from the dims. Lists are repeated over the layers.

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

/// Returns how many elements of a head are turned.
inline std::int64_t rotary_width(const Model& m) {
  return static_cast<std::int64_t>(static_cast<double>(m.head_dim) * m.partial_rotary_factor);
}

}  // namespace ztrain::config
