#pragma once
// Multi-head latent attention. DeepSeek-AI, "DeepSeek-V2", 2024.

#include <string>

#include "config/deck.hpp"
#include "model/builder.hpp"

namespace ztrain::model {

/// Inputs of the attention of one layer.
struct LatentInputs {
  ValueId x;      ///< [T, hidden_size]
  ValueId table;  ///< angles of the rotary embedding
  ValueId document_start;
};

/// Emits the attention of the module `name` ("model.layers.0.self_attn") and its output projection. Keys and
/// values come from one narrow product, the latent, and so do queries if q_lora_rank > 0. The last
/// qk_rope_head_dim elements of a head of queries and keys are turned; those of keys are shared by all heads.
/// Values are padded with zeros to the width of keys, so that all heads have one width.
ValueId latent_attention(Builder& builder, const config::Model& dims, const std::string& name,
                         const LatentInputs& inputs, const Attention& attention);

}  // namespace ztrain::model
