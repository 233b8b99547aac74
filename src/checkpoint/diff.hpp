#pragma once
// How the tensors of two checkpoints differ, whatever ranks and meshes wrote them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// Of one tensor of one state that is not the same in both.
struct TensorDifference {
  std::int64_t order = 0;  ///< among all tensors of the first checkpoint, then those of the second alone
  std::string state, name;
  std::string what;  ///< why they cannot be compared: one lacks it, or their shapes differ; else ""
  std::int64_t items = 0, differing = 0, first = -1;  ///< first: of those that differ, row-major
  double largest = 0, mean = 0;  ///< of absolute differences, over all items; infinite where one is NaN
};

struct Differences {
  std::vector<TensorDifference> tensors;  ///< those that differ, in their order
  std::int64_t same = 0;                  ///< how many do not
};

struct DiffOptions {
  int part = 0, parts = 1;  ///< looks at every parts-th tensor
  Progress progress = {};   ///< in items of tensors
};

/// Items are the same when their bits are; between two floating types, when their values in fp32 are.
/// Verifies what it reads. Throws Error where that is damaged. Not collective.
Differences diff(const std::filesystem::path& a, const std::filesystem::path& b,
                 const DiffOptions& options = {});

}  // namespace ztrain::checkpoint
