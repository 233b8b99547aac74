#pragma once
// Exports a checkpoint's weights as a Hugging Face model's folder, or its adapters as a PEFT folder. Merges a
// PEFT folder into the model that it belongs to.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "config/architectures.hpp"

namespace ztrain::checkpoint {

enum class ExportContent : std::uint8_t {
  model,    ///< weights, with adapters merged into them
  adapters  ///< adapters alone, with adapter_config.json
};

/// Facts of the run that wrote a checkpoint with adapters (Hu et al., "LoRA", 2021).
struct AdapterFacts {
  double alpha = 0, dropout = 0;
  bool rslora = false;
  std::string base;  ///< path of the model that they were trained beside; "": not known
};

/// Names of the options or keys, for messages.
struct ExportKeys {
  const char *folder = "--to", *dtype = "--dtype";
};

struct ExportOptions {
  DType dtype = DType::bf16;                     ///< fp32, bf16 or fp16; rounded to nearest even
  std::int64_t max_shard_bytes = 5'000'000'000;  ///< bytes of one file, unless a single tensor is larger
  ExportContent content = ExportContent::model;
  AdapterFacts adapters{};
  ExportKeys keys{};
  /// Says how files keep the parameters; null: each is a tensor of its own.
  const config::Architecture* architecture = nullptr;
  WeightValues values = WeightValues::trained;
  std::string base = {};  ///< folder of the weights that the checkpoint lacks; "": the one that it names
  /// Parameters of a folder of PEFT's and of the model that it belongs to (`base`); none: a checkpoint is
  /// exported.
  std::vector<ParameterShape> parameters = {};
};

/// A small file beside the weights.
struct SideFile {
  std::string name, text;
};

struct Exported {
  std::int64_t tensors = 0, bytes = 0, files = 0;  ///< files counts those of weights
  bool removed_remains = false;                    ///< whether remains of an interrupted export were removed
};

/// Writes model.safetensors, or model-0000k-of-0000n.safetensors and model.safetensors.index.json, and the
/// side files. For adapters writes adapter_model.safetensors, adapter_config.json and the side files. A
/// merged weight is W + scale * B A (config::adapter_scale), with products and sums in fp64, rounded to fp32
/// and then to the dtype.
///
/// Collective over MPI_COMM_WORLD; side files are taken from rank 0. Each rank writes a contiguous part of
/// the bytes, verifies the checksums of what it reads, and holds one block of the weights at a time; with
/// adapters also the two factors of one tensor, and of tensors that files transpose or interleave one whole
/// tensor, or one expert of it.
/// progress gets this rank's bytes after each block, when all are written, and again and again while this
/// rank waits for others.
///
/// The folder is <folder>.tmp until all is written and synced, then gets its name, which must not exist. A
/// <folder>.tmp that an interrupted export left is removed. If any rank fails, throws Error on every rank and
/// removes what was written. It fails for data that cannot be read or written, for weights that the dtype
/// cannot hold (names the tensor), and for adapters that are missing or not all that was trained.
Exported export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::span<const SideFile> side_files, const ExportOptions& options,
                        const Progress& progress = {});

/// Throws Error if an export to the folder would be refused: it exists, or its unfinished form does and
/// belongs to another export.
void require_new_folder(const std::filesystem::path& folder, const ExportKeys& keys);

}  // namespace ztrain::checkpoint
