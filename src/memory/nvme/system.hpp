#pragma once
// What the NVMe store asks of the system: a class, so that a test can plant what disks do.

#include <cstdint>

namespace ztrain::memory {

/// The system as it is. Threads of the store call ask() and answer(), several at once.
class NvmeSystem {
 public:
  virtual ~NvmeSystem() = default;

  /// Takes the room of a file (fallocate). 0, or what errno says.
  virtual int reserve(int descriptor, std::int64_t bytes);
  /// Lets reads and writes of the file pass the page cache by. 0, or what errno says.
  virtual int go_direct(int descriptor);
  /// 0, or what errno says where io_uring may not be used.
  virtual int allow_ring() { return 0; }

  /// How many bytes the system is asked for where `bytes` are wanted from `offset` of a file on.
  virtual std::int64_t ask(bool writes, std::int64_t offset, std::int64_t bytes) {
    static_cast<void>(writes), static_cast<void>(offset);
    return bytes;
  }
  /// What the store takes the system's answer for: bytes, or an error below zero.
  virtual std::int64_t answer(bool writes, std::int64_t offset, std::int64_t answer) {
    static_cast<void>(writes), static_cast<void>(offset);
    return answer;
  }
};

}  // namespace ztrain::memory
