#pragma once
// Large regions of the host's memory on huge pages: for what is read past the page cache, and to be pinned.

#include <cstddef>
#include <cstdint>

#include "memory/provider.hpp"

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
  std::int64_t bytes() const { return bytes_; }

  /// Asks for pages of a NUMA node from now on. If the system refuses, pages are of the node of the thread
  /// that touches them first.
  void prefer_node(int node) const;
  /// Takes all pages, as zeros, on all cores that this process may use. progress may be empty.
  void touch(const AllocationProgress& progress) const;

  /// What a buffer of so many bytes takes.
  static constexpr std::int64_t taken(std::int64_t bytes) {
    return (bytes + huge_page - 1) / huge_page * huge_page;
  }

 private:
  std::int64_t bytes_;
  std::byte* data_;
};

}  // namespace ztrain::memory
