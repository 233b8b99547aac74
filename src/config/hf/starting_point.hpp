#pragma once
// Reads what model.from names: a Hugging Face model, a checkpoint from whose weights a new run starts, or a
// folder of PEFT's with adapters of a model.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::config {

/// Name of a checkpoint's metadata as JSON. It stands beside the index, so that it can be read without HDF5.
inline constexpr const char* checkpoint_metadata_file = "metadata.json";
inline constexpr std::int64_t largest_metadata = 1 << 24;  ///< bytes; real ones have some thousands

struct StartingPoint {
  std::string file;                ///< name of the file that was read, for messages
  std::string origin;              ///< the Hugging Face model that the weights once came from; "": none
  std::int64_t positions = 0;      ///< tokens that the model was made for, by its config.json; 0: not given
  std::vector<std::int32_t> ends;  ///< tokens that end a text; for a checkpoint, those that its run recorded
  Settings settings;               ///< every key of [model] that shapes the model
  std::optional<Lora> adapters;    ///< adapters of a checkpoint that has some, or of PEFT's folder
  bool own_head = false;           ///< whether the head is untied because it differs from the embedding
  std::string base = {};           ///< of PEFT's folder: the folder of the model that it belongs to
  std::vector<std::string> whole = {};  ///< of PEFT's folder: parameters of the model that were trained too
  bool rewards = false;  ///< whether its head gives an answer one number (config/hf/reward_model.hpp)
};

/// Returns whether the folder is a checkpoint and not a Hugging Face model.
bool is_checkpoint(const std::string& folder);

/// Throws Error for adapters beside weights that would be drawn at random, unless the deck asks for that.
void require_base_of_adapters(const Deck& deck);

/// Returns a sentence on a folder that is neither a Hugging Face model nor a checkpoint, and what to do.
std::string instead_of_model(const std::filesystem::path& folder);

/// Returns a sentence on a folder that holds GGUF files for llama.cpp alone, or the original files of Llama
/// or Mistral (consolidated.00.pth, params.json) alone; "" for others.
std::string other_format_in(const std::filesystem::path& folder);

/// Reads a folder's config.json (config/hf/hf_config.hpp), metadata.json or adapter_config.json. Throws
/// Error, naming the file, if it is none of them, cannot be read, or describes what ztrain cannot compute.
/// trusted: model.trust_config. base: model.base.
StartingPoint starting_point(const std::string& folder, bool trusted = false, const std::string& base = "");

/// Makes the settings of a dense model those of a mixture of experts that starts from it, if they are of the
/// family's Architecture::dense; else returns false. Experts are as wide as the dense feed-forward, and how
/// many there are is left to the deck.
bool upcycle(const std::string& family, Settings& settings);

}  // namespace ztrain::config
