#pragma once
// What model.from names: a Hugging Face model, or a checkpoint whose weights a new run starts from.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::config {

/// A checkpoint's metadata as JSON, beside its index: what can be read without HDF5.
inline constexpr const char* checkpoint_metadata_file = "metadata.json";
inline constexpr std::int64_t largest_metadata = 1 << 24;  ///< bytes of it; real ones are some thousands

struct StartingPoint {
  std::string file;            ///< that was read, for messages
  std::string origin;          ///< the Hugging Face model that the weights once came from; "": none
  std::int64_t positions = 0;  ///< tokens that the model was made for, as its config.json says; 0: not said
  std::vector<std::int32_t> ends;  ///< tokens that end a text; of a checkpoint, as its run recorded them
  Settings settings;               ///< every key of [model] that shapes the model
  std::optional<Lora> adapters;    ///< of a checkpoint that holds some
};

/// A checkpoint, and no Hugging Face model.
bool is_checkpoint(const std::string& folder);

/// Throws Error for adapters beside weights that would be drawn at random, unless the deck asks for that.
void require_base_of_adapters(const Deck& deck);

/// A sentence on what a folder is that is neither a Hugging Face model nor a checkpoint, and what to do.
std::string instead_of_model(const std::filesystem::path& folder);

/// A sentence on a folder that holds weights for llama.cpp alone; "" for others.
std::string gguf_in(const std::filesystem::path& folder);

/// Reads a folder's config.json (config/hf/hf_config.hpp) or metadata.json. Throws Error, naming the file,
/// for what is neither, what cannot be read, and what ztrain cannot compute.
StartingPoint starting_point(const std::string& folder);

}  // namespace ztrain::config
