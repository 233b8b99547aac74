#include "memory/nvme/sums.hpp"

#include <algorithm>

namespace ztrain::memory {

NvmeRange& NvmeRanges::range(std::int64_t offset, std::int64_t bytes, std::size_t requests) {
  const auto [found, is_new] = ranges_.try_emplace({offset, bytes});
  NvmeRange& added = found->second;
  if (!is_new) return added;
  added.sums.resize(requests);
  longest_ = std::max(longest_, bytes);
  const auto end = ranges_.lower_bound({offset + bytes, 0});
  for (auto other = ranges_.lower_bound({offset - longest_ + 1, 0}); other != end; ++other) {
    if (other == found || other->first.first + other->first.second <= offset) continue;
    added.overlaps.push_back(&other->second);
    other->second.overlaps.push_back(&added);
  }
  return added;
}

}  // namespace ztrain::memory
