#pragma once
// config.json of Hugging Face models of the families in config/hf/architectures.hpp, read into settings of
// the deck and written from a model of the deck.

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "config/deck.hpp"
#include "config/presets.hpp"

namespace ztrain::config {

/// The file that hf_settings reads, for messages.
std::string hf_config_path(const std::string& folder);

/// What a folder's config.json sets: every key of [model] that shapes the model, defaults of transformers
/// included. Throws Error, naming file and key, for what cannot be read and for what ztrain's families cannot
/// compute: another architecture, activation or rotary scaling, quantised weights, dropout, biases of the
/// feed-forward layers, windows in other layers than the last ones.
Settings hf_settings(const std::string& folder);

/// The text of a config.json that transformers reads as the same model. dtype: of the weights beside it;
/// max_positions: the longest sequence the model was trained for. Model::from, where it still can be read,
/// gives what training does not change: max_position_embeddings and the special tokens' ids. Throws Error for
/// a model that its family's class is not.
std::string hf_config(const Model& model, DType dtype, std::int64_t max_positions);

/// The name of a dtype in such a file: "bfloat16", "float16", "float32" or "float64".
std::string hf_dtype(DType dtype);

}  // namespace ztrain::config
