#pragma once
// Weights to start from into the shards of a run. They come from a Hugging Face model's folder
// (model.safetensors, or the files that model.safetensors.index.json names) or from a checkpoint, of which
// the weights alone are read.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

struct Imported {
  std::int64_t bytes = 0;           ///< of tensors, as they are stored, that this rank has read
  std::vector<std::string> absent;  ///< adapters that the folder has not: their elements are zero
};

/// Fills the "model" shards from a folder; padding becomes zero. Not collective: each rank reads the headers
/// or the index, and of the tensors the bytes of its own slices, through one block of memory; it touches no
/// other memory of the run. fp64, fp32, bf16 and fp16 weights become the shards' dtype, rounded to nearest
/// even. In a Hugging Face folder lm_head.weight may be there where the head is tied, and
/// rotary_emb.inv_freq in any case: they are not read. Blocks of a checkpoint are compared with their
/// checksums. progress is called after each block.
/// Throws Error: one that lists all missing, unexpected and wrongly shaped tensors, the first of each by
/// name; for files that are missing, truncated, damaged or of no such format; for NaN and infinite weights,
/// or such as become infinite, with the tensor's name.
Imported import_weights(const std::filesystem::path& folder, const Place& place,
                        std::span<const StateShard> shards, const Progress& progress = {});

/// What import_weights checks before it reads a weight: the files, their headers, and all names, shapes and
/// dtypes. Gives the bytes of the parameters that the folder has.
std::int64_t require_weights(const std::filesystem::path& folder, std::span<const ParameterShape> parameters);

}  // namespace ztrain::checkpoint
