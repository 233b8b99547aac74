#pragma once
// Weights of a Hugging Face model's folder into the shards of a run: model.safetensors, or the files that
// model.safetensors.index.json names.

#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// Fills the "model" shards from a folder; padding becomes zero. Not collective: each rank reads the headers,
/// and of the tensors the bytes of its own slices, through one block of memory. fp64, fp32, bf16 and fp16
/// weights become the shards' dtype, rounded to nearest even. lm_head.weight may be there where the head is
/// tied, and rotary_emb.inv_freq in any case: they are not read. Gives the bytes of tensors read; progress is
/// called after each block.
/// Throws Error: one that lists all missing, unexpected and wrongly shaped tensors, the first of each by
/// name; for files that are missing, truncated or no safetensors files; for NaN and infinite weights, or such
/// as become infinite, with the tensor's name.
std::int64_t import_weights(const std::filesystem::path& folder, const Place& place,
                            std::span<const StateShard> shards, const Progress& progress = {});

/// What import_weights checks before it reads a weight: the files, their headers, and all names, shapes and
/// dtypes. Gives the bytes of the parameters.
std::int64_t require_weights(const std::filesystem::path& folder, std::span<const ParameterShape> parameters);

}  // namespace ztrain::checkpoint
