#pragma once
// What a Hugging Face model's folder says of generation: generation_config.json and config.json.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::config {

/// Tokens that end a text: those of generation_config.json, else of config.json; empty where neither file is
/// there or says any. Throws Error, with the file and the key, for a file or an id that is not valid.
std::vector<std::int32_t> hf_eos(const std::string& folder);

/// Tokens that the model was made for, of config.json (max_position_embeddings, or n_positions in older
/// files); 0: not said. Throws Error as hf_eos.
std::int64_t hf_positions(const std::string& folder);

}  // namespace ztrain::config
