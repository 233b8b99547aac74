#pragma once
// A checkpoint's weights as a Hugging Face model's folder, or its adapters as a PEFT folder.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

enum class ExportContent : std::uint8_t {
  model,    ///< weights; adapters are merged into those that they belong to
  adapters  ///< adapters alone, with adapter_config.json
};

/// Of the run that wrote a checkpoint with adapters (Hu et al., "LoRA", 2021).
struct AdapterFacts {
  double alpha = 0, dropout = 0;
  std::string base;  ///< path of the model that they were trained beside; "": not known
};

/// What the user sets things with, for messages.
struct ExportKeys {
  const char *folder = "--to", *dtype = "--dtype";
};

struct ExportOptions {
  DType dtype = DType::bf16;                     ///< fp32, bf16 or fp16; to nearest even
  std::int64_t max_shard_bytes = 5'000'000'000;  ///< of one file, unless a single tensor is larger
  ExportContent content = ExportContent::model;
  AdapterFacts adapters{};
  ExportKeys keys{};
};

/// A small file beside the weights.
struct SideFile {
  std::string name, text;
};

struct Exported {
  std::int64_t tensors = 0, bytes = 0, files = 0;  ///< files: of weights
  bool removed_remains = false;                    ///< of an export that was interrupted
};

/// Writes model.safetensors, or model-0000k-of-0000n.safetensors and model.safetensors.index.json, and the
/// side files; or adapter_model.safetensors, adapter_config.json and the side files. A merged weight is
/// W + alpha / rank * B A, with products and sums in fp64, rounded to fp32 and once more to the dtype.
///
/// Collective over MPI_COMM_WORLD; side files are taken from rank 0. Each rank writes a contiguous part of
/// the bytes, verifies the checksums of what it reads, and holds one block of the weights at a time, with
/// adapters also the two factors of one tensor. progress tells of this rank's bytes: after each block, when
/// all of them are written, and again and again while this rank waits for others.
///
/// The folder is <folder>.tmp until all is written and synced, then gets its name; it must not exist. A
/// <folder>.tmp that an interrupted export left is removed. Throws Error on every rank, and removes what was
/// written, when any rank fails: for what cannot be read or written, for weights that the dtype cannot hold
/// (by tensor), and for adapters that are not there or not all that was trained.
Exported export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::span<const SideFile> side_files, const ExportOptions& options,
                        const Progress& progress = {});

/// Throws Error when an export to the folder would be refused: it exists, or its unfinished form does and
/// is somebody else's.
void require_new_folder(const std::filesystem::path& folder, const ExportKeys& keys);

}  // namespace ztrain::checkpoint
