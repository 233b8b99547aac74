#pragma once
// A shard that is to be filled, where the CPU reaches it. Internal to checkpoint.

#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

class HostCopy {
 public:
  /// bytes: of the shard. Where the CPU reaches it, it is its own copy.
  HostCopy(const StateShard& shard, std::int64_t bytes) : shard_(shard), bytes_(bytes) {
    if (shard.memory) copy_.resize(static_cast<std::size_t>(bytes));
  }

  std::byte* data() { return shard_.memory ? copy_.data() : shard_.data; }
  /// Puts the bytes into the shard.
  void complete() {
    if (shard_.memory && bytes_ > 0) shard_.memory->write(shard_.data, copy_.data(), bytes_);
  }

 private:
  const StateShard& shard_;
  std::int64_t bytes_;
  std::vector<std::byte> copy_;
};

}  // namespace ztrain::checkpoint
