#pragma once
// Finds a head in a Hugging Face folder whose config.json ties it to the embedding. Transformers 5 keeps
// the two apart if they differ.

#include <string>

#include "config/architectures.hpp"

namespace ztrain::config {

/// Returns whether the folder of an architecture's model has a head and an embedding of one shape and dtype
/// whose values differ. Compares pieces spread evenly over the two tensors, some megabytes at most, and stops
/// at the first difference. Returns false for a folder without readable weights. Reading the weights compares
/// all.
bool has_own_head(const std::string& folder, const Architecture& architecture);

/// Tells why a model has a head of its own; ends the source of model.tie_word_embeddings.
inline constexpr const char* own_head_source = ", and an lm_head.weight of its own beside it";

}  // namespace ztrain::config
