#pragma once
// Reads config.json of Hugging Face models (config/architectures.hpp) into settings of the deck, writes it
// from a model of the deck, and reads what a model's folder says of generation.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "config/deck.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::config {

/// Key of the tokens that end a text, in config.json, generation_config.json and a checkpoint's metadata.
inline constexpr const char* ends_key = "eos_token_id";

/// Returns the path of the file that hf_settings reads, for messages.
std::string hf_config_path(const std::string& folder);

/// The head of a model: the likelihoods of words, or the number that a reward model gives an answer.
enum class HfHead : std::uint8_t { words, reward };

/// Returns the settings of a folder's config.json: every key of [model] that shapes the model, with
/// transformers' defaults. Throws Error, naming file and key, for what cannot be read and for what ztrain's
/// families cannot compute: another architecture, activation or rotary scaling, quantised weights, dropout of
/// attention in families whose models are published without, and unless it is trusted (model.trust_config)
/// code of the model's own.
Settings hf_settings(const std::string& folder, bool trusted = false);

/// Returns the text of a config.json that transformers reads as the same model. dtype is that of the weights
/// beside it; max_positions is the longest sequence of training. Model::from, if it can be read, gives what
/// training does not change: max_position_embeddings and the ids of special tokens
/// (config/hf/special_tokens.hpp). Throws Error if the model does not fit its family's class.
std::string hf_config(const Model& model, DType dtype, std::int64_t max_positions,
                      HfHead head = HfHead::words);

/// Returns a note if the config.json of Model::from asks for dropout in training or for layers that predict
/// further tokens, which ztrain leaves out; else "".
std::string left_out_note(const Model& model);

/// Returns the name of a dtype in such a file: "bfloat16", "float16", "float32" or "float64".
std::string hf_dtype(DType dtype);

/// Returns the tokens that end a text, from generation_config.json, else from config.json; empty if neither
/// says any. Throws Error, with file and key, for an invalid file or id.
std::vector<std::int32_t> hf_eos(const std::string& folder);

/// Returns the same for callers that do not generate: empty if a file or an id is not valid.
std::vector<std::int32_t> hf_eos_if_valid(const std::string& folder);

/// Returns the tokens that the model was made for, from config.json (max_position_embeddings, or n_positions
/// in older files); 0: not given. Throws Error as hf_eos.
std::int64_t hf_positions(const std::string& folder);

}  // namespace ztrain::config
