#pragma once
// Which tensors an export writes into which files, and what they are made of. Internal to checkpoint.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/format.hpp"
#include "checkpoint/hf/export.hpp"
#include "checkpoint/hf/safetensors.hpp"

namespace ztrain::checkpoint {

/// The factors of a layer's adapter, by their places in the catalog: A [rank, k], B [n, rank].
struct AdapterPair {
  std::int64_t a = 0, b = 0;
};

/// What a tensor is made of.
struct TensorSource {
  std::int64_t parameter = 0;        ///< its place in the catalog
  std::optional<AdapterPair> added;  ///< merged into it
};

/// A range of tensors that share a file.
struct PlannedFile {
  std::string name;
  std::size_t first = 0, count = 0;
};

struct ExportPlan {
  std::vector<SafeTensor> tensors;  ///< begin: not set
  std::vector<TensorSource> sources;
  std::vector<PlannedFile> files;
  std::int64_t state = 0;  ///< of the weights, in the catalog
  std::int64_t rank = 0;   ///< of the adapters; 0: there are none
  std::int64_t bytes = 0;
  std::string adapter_config;  ///< text of adapter_config.json; "": none is written
};

/// Throws Error, naming the checkpoint, for what cannot be exported.
ExportPlan plan_export(const Catalog& catalog, const std::string& checkpoint, const ExportOptions& options);

}  // namespace ztrain::checkpoint
