#pragma once
// Calls of the NVMe store to the system, as a class, so that a test can plant what disks do.

#include <cstdint>

namespace ztrain::memory {

/// The real system. Threads of the store call ask() and answer(), several at once.
class NvmeSystem {
 public:
  virtual ~NvmeSystem() = default;

  /// Takes the room of a file (fallocate). Returns 0 or errno.
  virtual int reserve(int descriptor, std::int64_t bytes);
  /// Lets reads and writes of the file bypass the page cache. Returns 0 or errno.
  virtual int go_direct(int descriptor);
  /// Returns 0, or errno if io_uring may not be used.
  virtual int allow_ring() { return 0; }

  /// Returns how many bytes to ask the system for if `bytes` are wanted from `offset` of a file on.
  virtual std::int64_t ask(bool writes, std::int64_t offset, std::int64_t bytes) {
    static_cast<void>(writes), static_cast<void>(offset);
    return bytes;
  }
  /// Returns what the store takes for the system's answer: bytes, or an error below zero.
  virtual std::int64_t answer(bool writes, std::int64_t offset, std::int64_t answer) {
    static_cast<void>(writes), static_cast<void>(offset);
    return answer;
  }
};

}  // namespace ztrain::memory
