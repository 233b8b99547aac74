#pragma once
// Finds how the tensors of two checkpoints differ, whatever ranks and meshes wrote them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// A tensor of one state that differs between the two.
struct TensorDifference {
  std::int64_t order =
      0;  ///< place among all tensors of the first checkpoint, then those of the second alone
  std::string state, name;
  std::string what;  ///< why they cannot be compared: one lacks it, or the shapes differ; else ""
  std::int64_t items = 0, differing = 0, first = -1;  ///< first: row-major index of the first differing item
  double largest = 0, mean = 0;  ///< absolute differences over all items; infinite if one is NaN
};

struct Differences {
  std::vector<TensorDifference> tensors;  ///< differing tensors, in their order
  std::int64_t same = 0;                  ///< number of equal tensors
};

struct DiffOptions {
  int part = 0, parts = 1;  ///< looks at every parts-th tensor
  Progress progress = {};   ///< counts items of tensors
};

/// Compares two checkpoints. Not collective. Items are the same if their bits are; between two floating
/// types, if their values in fp32 are. Verifies what it reads. Throws Error for damaged data.
Differences diff(const std::filesystem::path& a, const std::filesystem::path& b,
                 const DiffOptions& options = {});

}  // namespace ztrain::checkpoint
