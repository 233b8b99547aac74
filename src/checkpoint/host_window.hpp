#pragma once
// A shard that is to be filled, where the CPU reaches it. Internal to checkpoint.

#include <algorithm>
#include <cstring>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// Where the CPU reaches a shard it is filled in place. Another one is filled through memory of the host that
/// has room for some of its bytes, stretch by stretch; called by the thread whose device it is.
class HostWindow {
 public:
  HostWindow(const StateShard& shard, std::int64_t room) : shard_(shard), room_(room) {}

  /// Whether bytes [begin, end) of the shard have room beside those that were placed since the last flush().
  /// A stretch that comes first always has.
  bool holds(std::int64_t begin, std::int64_t end) const {
    return !shard_.memory || begin_ == end_ || (begin >= begin_ && end - begin_ <= room_);
  }
  /// Where the CPU puts bytes [begin, end) of the shard until flush(), once all are placed. holds(begin,
  /// end).
  std::byte* place(std::int64_t begin, std::int64_t end) {
    if (!shard_.memory) return shard_.data + begin;
    if (begin_ == end_) {
      begin_ = end_ = begin;
      window_.resize(static_cast<std::size_t>(std::max(room_, end - begin)));
    }
    // What lies between them becomes zero here too.
    if (begin > end_)
      std::memset(window_.data() + (end_ - begin_), 0, static_cast<std::size_t>(begin - end_));
    end_ = std::max(end_, end);
    return window_.data() + (begin - begin_);
  }
  /// Brings what was put to the places to the shard.
  void flush() {
    if (begin_ < end_) shard_.memory->write(shard_.data + begin_, window_.data(), end_ - begin_);
    begin_ = end_;
  }
  void zero(std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return;
    if (shard_.memory)
      shard_.memory->fill(shard_.data + begin, 0, end - begin);
    else
      std::memset(shard_.data + begin, 0, static_cast<std::size_t>(end - begin));
  }

 private:
  const StateShard& shard_;
  std::int64_t room_;
  std::int64_t begin_ = 0, end_ = 0;  ///< of the shard: what the window has
  std::vector<std::byte> window_;
};

}  // namespace ztrain::checkpoint
