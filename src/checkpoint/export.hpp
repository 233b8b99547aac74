#pragma once
// A checkpoint's weights as a Hugging Face model's folder.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

struct ExportOptions {
  DType dtype = DType::bf16;                     ///< fp32, bf16 or fp16; to nearest even
  std::int64_t max_shard_bytes = 5'000'000'000;  ///< of one file, unless a single tensor is larger
};

/// A small file beside the weights.
struct SideFile {
  std::string name, text;
};

struct Exported {
  std::int64_t tensors = 0, bytes = 0, files = 0;  ///< files: of weights
};

/// Writes model.safetensors, or model-0000k-of-0000n.safetensors and model.safetensors.index.json, and the
/// side files. Not collective: one process reads the checkpoint's shard files and verifies their checksums;
/// of the weights it holds one block at a time. The folder is <folder>.tmp until all is written and synced,
/// then gets its name; it must not exist. Throws Error, and removes what it has written, for what cannot be
/// read or written, and for weights that the dtype cannot hold (by tensor).
Exported export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::span<const SideFile> side_files, const ExportOptions& options,
                        const Progress& progress = {});

}  // namespace ztrain::checkpoint
