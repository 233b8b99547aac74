#pragma once
// Reads adapter_config.json of folders in which the PEFT library keeps low-rank adapters.

#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

inline constexpr const char* peft_config_file = "adapter_config.json";
inline constexpr const char* peft_weights_file = "adapter_model.safetensors";
/// First part of the names of all tensors of a PEFT folder; the name of a parameter follows.
inline constexpr std::string_view peft_prefix = "base_model.model.";

/// Returns whether a folder holds adapters in PEFT's form, and no model.
bool is_peft_folder(const std::string& folder);

struct PeftConfig {
  std::string file;                     ///< path, for messages
  std::string base;                     ///< base_model_name_or_path; "": not given
  Lora lora;                            ///< random_base is not set
  std::vector<std::string> whole = {};  ///< parameters of the model that the folder holds besides adapters
};

/// Reads a folder's adapter_config.json, and the names of the tensors beside it. Throws Error, naming file
/// and key, for what ztrain's adapters cannot be: another peft_type, ranks or scales that differ between
/// modules, biases, adapters of some layers alone by other keys than their names, and base weights that PEFT
/// changes.
PeftConfig read_peft_config(const std::string& folder);

}  // namespace ztrain::config
