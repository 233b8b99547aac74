#pragma once
// Large regions of the host's memory on huge pages, for data that are read past the page cache, and to be
// pinned.

#include <cstddef>
#include <cstdint>

#include "memory/provider.hpp"

namespace ztrain::memory {

inline constexpr std::int64_t huge_page = std::int64_t{2} << 20;

/// Memory that begins on a huge page and consists of whole ones if the system has them. A disk then gets few
/// long runs of memory, and is faster by half (docs/performance.md).
class HugeBuffer {
 public:
  explicit HugeBuffer(std::int64_t bytes);
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  ~HugeBuffer();

  /// Null if there was no memory.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

  /// Asks for pages of a NUMA node from now on. If the system refuses, pages come from the node of the thread
  /// that touches them first.
  void prefer_node(int node) const;
  /// Touches all pages, as zeros, on all cores that this process may use. progress may be empty.
  void touch(const AllocationProgress& progress) const;

  /// Returns the bytes that a buffer of this size takes.
  static constexpr std::int64_t taken(std::int64_t bytes) {
    return (bytes + huge_page - 1) / huge_page * huge_page;
  }

 private:
  std::int64_t bytes_;
  std::byte* data_;
};

}  // namespace ztrain::memory
