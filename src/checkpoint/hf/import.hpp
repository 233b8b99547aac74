#pragma once
// Reads weights to start from into the shards of a run: from a Hugging Face model's folder
// (model.safetensors, or the files that model.safetensors.index.json names), from a checkpoint, of which only
// the weights are read, or from a folder of PEFT's with the model that it belongs to. Reads by pread, not by
// a mapping, which would answer a file that shrinks with a signal instead of an error.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/weight_form.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/frozen_base.hpp"
#include "checkpoint/value_hashes.hpp"
#include "config/architectures.hpp"
#include "config/deck.hpp"

namespace ztrain::checkpoint {

/// Ways to give a folder of frozen weights that is not the one that a checkpoint names, for messages.
inline constexpr const char* base_options = "--base of this command, or model.base of a deck";

/// Frozen weights that a checkpoint does not hold, as an import has read them (FrozenBase).
struct BaseRead {
  std::string folder;
  ValueHashes hashes;  ///< of the parts that this rank owns
};

struct Imported {
  std::int64_t bytes = 0;  ///< stored bytes of tensors that this rank has read
  /// Parameters that are drawn, since the folder lacks them: adapters, routers of a mixture of experts that
  /// starts from a dense model, and the head of a reward model that starts from one of words. Their elements
  /// are zero.
  std::vector<std::string> absent;
  std::optional<BaseRead> base = {};  ///< of a checkpoint that lacks its base; see require_same_base
};

struct ImportOptions {
  /// Type to which the model rounds the weights for computation; none: that of the shards.
  std::optional<DType> computed = {};
  /// Whether the head is tied to the embedding. An lm_head.weight of the folder is then left out, whatever it
  /// holds.
  bool leaves_head = false;
  AddedRows added = {};
  std::vector<std::string> may_lack = {};  ///< globs of parameters that the folder may lack besides adapters
  /// Says how the files of a Hugging Face folder keep the parameters; null: each is a tensor of its own.
  const config::Architecture* architecture = nullptr;
  Progress progress = {};
  /// Folder of the weights that a checkpoint or PEFT's folder lacks; "": that which the checkpoint names.
  std::string base = {};
  WeightValues values = WeightValues::trained;  ///< of a checkpoint
  ValueHashes* frozen = nullptr;  ///< gets what this rank owns of parameters that are not trained
};

/// Returns the options with which a run of this deck reads model.from.
ImportOptions import_options(const config::Deck& deck);

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

/// Gives elements [begin, begin + count) of a parameter, row-major, at most 2^20 at once.
using ReadParameter =
    std::function<void(const std::string& name, std::int64_t begin, std::int64_t count, float* to)>;
/// Opens a folder as import_weights does, for parameters that become no shards as they are. Throws what
/// import_weights throws, and so do the calls of the result. quantized: parameters that are given as their
/// codes say.
ReadParameter open_elements(const std::filesystem::path& folder, std::span<const ParameterShape> parameters,
                            const ImportOptions& options = {}, const QuantizedNames& quantized = {});

/// Checks what import_weights checks before it reads a weight: the files, their headers, and all names,
/// shapes and dtypes. Also compares a tied head. Returns the bytes of the parameters that the folder has.
std::int64_t require_weights(const std::filesystem::path& folder, std::span<const ParameterShape> parameters,
                             const ImportOptions& options = {});

}  // namespace ztrain::checkpoint
