#pragma once
// Internal to checkpoint. A shard to be filled, in memory that the CPU reaches.

#include <algorithm>
#include <cstring>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// Fills a shard in place if the CPU reaches it. Otherwise fills it run by run through memory of the host,
/// which has room for some of its bytes. The thread that uses the device makes all calls.
class HostWindow {
 public:
  HostWindow(const StateShard& shard, std::int64_t room) : shard_(shard), room_(room) {}

  /// Returns whether bytes [begin, end) of the shard have room beside those placed since the last flush().
  /// The first run always has.
  bool holds(std::int64_t begin, std::int64_t end) const {
    return !shard_.memory || begin_ == end_ || (begin >= begin_ && end - begin_ <= room_);
  }
  /// Returns where the CPU puts bytes [begin, end) of the shard, until all are there and flush() is called.
  /// holds(begin, end) must be true.
  std::byte* place(std::int64_t begin, std::int64_t end) {
    if (!shard_.memory) return shard_.data + begin;
    if (begin_ == end_) {
      begin_ = end_ = begin;
      window_.resize(static_cast<std::size_t>(std::max(room_, end - begin)));
    }
    // The bytes between two places become zero here too.
    if (begin > end_)
      std::memset(window_.data() + (end_ - begin_), 0, static_cast<std::size_t>(begin - end_));
    end_ = std::max(end_, end);
    return window_.data() + (begin - begin_);
  }
  /// Copies the bytes that were put there to the shard.
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
  std::int64_t begin_ = 0, end_ = 0;  ///< bytes of the shard that the window has
  std::vector<std::byte> window_;
};

}  // namespace ztrain::checkpoint
