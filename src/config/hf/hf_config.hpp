#pragma once
// config.json of Hugging Face models of the families in config/architectures.hpp, read into settings of
// the deck and written from a model of the deck; and what the folder says of generation.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "config/deck.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::config {

/// Tokens that end a text, in config.json, generation_config.json and a checkpoint's metadata.
inline constexpr const char* ends_key = "eos_token_id";

/// The file that hf_settings reads, for messages.
std::string hf_config_path(const std::string& folder);

/// What a folder's config.json sets: every key of [model] that shapes the model, defaults of transformers
/// included. Throws Error, naming file and key, for what cannot be read and for what ztrain's families cannot
/// compute: another architecture, activation or rotary scaling, quantised weights, dropout, biases of the
/// feed-forward layers, windows in other layers than the last ones.
Settings hf_settings(const std::string& folder);

/// The text of a config.json that transformers reads as the same model. dtype: of the weights beside it;
/// max_positions: the longest sequence the model was trained for. Model::from, where it still can be read,
/// gives what training does not change: max_position_embeddings and the special tokens' ids, of which it may
/// leave some to transformers. Without it eos_token_id is Model::ends, and ids that are not known are null:
/// transformers takes others where a file is silent. Throws Error for a model that its family's class is not.
std::string hf_config(const Model& model, DType dtype, std::int64_t max_positions);

/// The name of a dtype in such a file: "bfloat16", "float16", "float32" or "float64".
std::string hf_dtype(DType dtype);

/// Tokens that end a text: those of generation_config.json, else of config.json; empty where neither file is
/// there or says any. Throws Error, with the file and the key, for a file or an id that is not valid.
std::vector<std::int32_t> hf_eos(const std::string& folder);

/// The same for callers that do not generate: empty if a file or an id is not valid.
std::vector<std::int32_t> hf_eos_if_valid(const std::string& folder);

/// Tokens that the model was made for, of config.json (max_position_embeddings, or n_positions in older
/// files); 0: not said. Throws Error as hf_eos.
std::int64_t hf_positions(const std::string& folder);

}  // namespace ztrain::config
