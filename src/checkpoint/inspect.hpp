#pragma once
// Reads what a checkpoint says of itself, without its tensors.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"

namespace ztrain::checkpoint {

struct TensorInfo {
  std::string state, name;
  DType dtype = DType::f32;
  Shape shape;               ///< shape of the parameter
  std::int64_t granule = 1;  ///< elements per item
  std::int64_t bytes = 0, pieces = 0;
  bool frozen = false;
};

struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
};

struct Inspected {
  nlohmann::json metadata;          ///< metadata as the saver gave it
  std::vector<TensorInfo> tensors;  ///< tensors of all states, state by state
  std::vector<FileInfo> files;
};

/// Throws Error if the folder is not a checkpoint, or if its index is damaged.
Inspected inspect(const std::filesystem::path& folder);

}  // namespace ztrain::checkpoint
