#pragma once
// Weights to start from into the shards of a run. They come from a Hugging Face model's folder
// (model.safetensors, or the files that model.safetensors.index.json names) or from a checkpoint, of which
// the weights alone are read.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

struct Imported {
  std::int64_t bytes = 0;           ///< of tensors, as they are stored, that this rank has read
  std::vector<std::string> absent;  ///< adapters that the folder has not: their elements are zero
};

struct ImportOptions {
  /// The model computes with the weights rounded to this type; none: with those of the shards.
  std::optional<DType> computed = {};
  /// Where the head is tied to the embedding, an lm_head.weight of the folder is left out, whatever it holds.
  bool leaves_head = false;
  Progress progress = {};
};

/// Fills the "model" shards from a folder; padding becomes zero. Not collective: each rank reads the headers
/// or the index, and of the tensors the bytes of its own slices, through one block of memory; it touches no
/// other memory of the run. fp64, fp32, bf16 and fp16 weights become the shards' dtype, rounded to nearest
/// even. In a Hugging Face folder rotary_emb.inv_freq may be there, which is not read; and lm_head.weight
/// where the head is tied, which each rank compares in fp32 with its part of the embedding. Blocks of a
/// checkpoint are compared with their checksums. progress is called after each block. Throws Error: one that
/// lists all missing, unexpected and wrongly shaped tensors, the first of each by name; for files that are
/// missing, truncated, damaged or of no such format; for NaN and infinite weights, or such as become
/// infinite, with the tensor's name; for a tied head that is not the embedding.
Imported import_weights(const std::filesystem::path& folder, const Place& place,
                        std::span<const StateShard> shards, const ImportOptions& options = {});

/// What import_weights checks before it reads a weight: the files, their headers, and all names, shapes and
/// dtypes; and a tied head, which it compares. Gives the bytes of the parameters that the folder has.
std::int64_t require_weights(const std::filesystem::path& folder, std::span<const ParameterShape> parameters,
                             const ImportOptions& options = {});

}  // namespace ztrain::checkpoint
