#pragma once
// Memory that a disk's bytes are read into past the page cache.

#include <cstddef>
#include <cstdint>

namespace ztrain::memory {

inline constexpr std::int64_t huge_page = std::int64_t{2} << 20;

/// Begins on a huge page, and is of such pages where the system has them: a disk then gets few long stretches
/// of memory, and is faster by half for it (docs/performance.md). A whole number of them is taken.
class HugeBuffer {
 public:
  explicit HugeBuffer(std::int64_t bytes);
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  ~HugeBuffer();

  /// Null where there is no memory.
  std::byte* data() const { return data_; }

  /// What a buffer of so many bytes takes.
  static constexpr std::int64_t taken(std::int64_t bytes) {
    return (bytes + huge_page - 1) / huge_page * huge_page;
  }

 private:
  std::int64_t bytes_;
  std::byte* data_;
};

}  // namespace ztrain::memory
