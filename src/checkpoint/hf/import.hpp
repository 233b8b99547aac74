#pragma once
// Reads weights to start from into the shards of a run: from a Hugging Face model's folder
// (model.safetensors, or the files that model.safetensors.index.json names), or from a checkpoint, of which
// only the weights are read. Reads by pread, not by a mapping, which would answer a file that shrinks with a
// signal instead of an error.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "config/architectures.hpp"
#include "config/deck.hpp"

namespace ztrain::checkpoint {

struct Imported {
  std::int64_t bytes = 0;  ///< stored bytes of tensors that this rank has read
  /// Parameters that are drawn, since the folder lacks them: adapters, and routers of a mixture of experts
  /// that starts from a dense model. Their elements are zero.
  std::vector<std::string> absent;
};

/// Rows that embedding and head get behind those of the folder.
struct AddedRows {
  std::int64_t count = 0;
  bool drawn =
      false;  ///< drawn with standard deviation `std` from `seed`; else the mean of the folder's rows
  double std = 0;
  std::uint64_t seed = 0;
};

struct ImportOptions {
  /// Type to which the model rounds the weights for computation; none: that of the shards.
  std::optional<DType> computed = {};
  /// Whether the head is tied to the embedding. An lm_head.weight of the folder is then left out, whatever it
  /// holds.
  bool leaves_head = false;
  AddedRows added = {};
  std::string may_lack = {};  ///< glob of parameters that the folder may lack besides adapters; "": of none
  /// Says how the files of a Hugging Face folder keep the parameters; null: each is a tensor of its own.
  const config::Architecture* architecture = nullptr;
  Progress progress = {};
};

/// Returns the rows that a deck adds (model.add_tokens).
AddedRows added_rows(const config::Deck& deck);

/// Returns ImportOptions::may_lack of a deck: the routers if model.from is a dense model.
std::string drawn_parameters(const config::Model& model);

/// Fills the "model" shards from a folder; padding becomes zero. Not collective. Each rank reads the headers
/// or the index, and of the tensors the bytes of its own slices, through one block of memory; it touches no
/// other memory of the run. fp64, fp32, bf16 and fp16 weights become the shards' dtype, rounded to nearest
/// even. A Hugging Face folder may hold rotary_emb.inv_freq and its architecture's buffers, which are not
/// used; a buffer with a fixed value must have that value. It may hold lm_head.weight for a tied head, which
/// each rank compares in fp32 with its part of the embedding.
/// Its names may lack their first part ("model."). Parameters that the architecture's files fuse
/// may be tensors of their own. Blocks of a checkpoint are compared with their checksums. Calls
/// progress after each block. Throws Error that lists all missing, unexpected and wrongly shaped tensors, the
/// first of each by name; for files that are missing, truncated, damaged or of another format; for weights
/// that are or become NaN or infinite, with the tensor's name; and for a tied head that is not the embedding.
Imported import_weights(const std::filesystem::path& folder, const Place& place,
                        std::span<const StateShard> shards, const ImportOptions& options = {});

/// Checks what import_weights checks before it reads a weight: the files, their headers, and all names,
/// shapes and dtypes. Also compares a tied head. Returns the bytes of the parameters that the folder has.
std::int64_t require_weights(const std::filesystem::path& folder, std::span<const ParameterShape> parameters,
                             const ImportOptions& options = {});

}  // namespace ztrain::checkpoint
