#pragma once
// Checksums of the ranges that transfers write, one for each of their requests.

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace ztrain::memory {

struct NvmeRange {
  std::vector<std::uint64_t> sums;
  bool holds = false;  ///< the range holds what the sums are of
  std::vector<NvmeRange*> overlaps;
};

/// Ranges that are the same bytes have the same requests, and so share their sums.
class NvmeRanges {
 public:
  /// The address stays.
  NvmeRange& range(std::int64_t offset, std::int64_t bytes, std::size_t requests);

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, NvmeRange> ranges_;  ///< by offset and bytes
  std::int64_t longest_ = 0;
};

}  // namespace ztrain::memory
