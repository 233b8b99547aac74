#pragma once
// Names of weights in Hugging Face models that ztrain treats by name.

namespace ztrain::config {

/// Name of the head's weight. A model whose head is tied to the embedding has no such weight.
inline constexpr const char* head_weight = "lm_head.weight";
/// Name of the embedding's weight, which a tied head uses too.
inline constexpr const char* embedding_weight = "model.embed_tokens.weight";

}  // namespace ztrain::config
