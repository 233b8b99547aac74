#pragma once
// What a Hugging Face model's folder says of generation: generation_config.json and config.json.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::config {

struct HfGeneration {
  std::vector<std::int32_t> eos;   ///< tokens that end a text; empty: not said
  std::int64_t max_positions = 0;  ///< tokens that the model was made for; 0: not said
};

/// Nothing is said by files that are not there. Throws Error, naming the file, for one that is not valid.
HfGeneration hf_generation(const std::string& folder);

}  // namespace ztrain::config
