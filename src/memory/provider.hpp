#pragma once
// Where the bytes of an arena come from, and how the host reaches them.

#include <cstddef>
#include <cstdint>
#include <string>

#include "memory/machine.hpp"

namespace ztrain::memory {

/// Memory of one kind: the host's, or a device's. Outlives what was allocated from it.
class Provider {
 public:
  virtual ~Provider() = default;

  /// bytes > 0; what is given is aligned to 4096 and all zero. `name` ("transient arena") is for messages.
  /// Throws Error when there is not that much, with both figures.
  virtual std::byte* allocate(const std::string& name, std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) noexcept = 0;

  /// Whether the host may read and write it through its addresses.
  virtual bool host_accessible() const = 0;

  // Between work: whoever calls these has made sure that nothing else is under way on the ranges. They return
  // when the bytes are in place.
  virtual void fill(void* data, int value, std::int64_t bytes) = 0;
  virtual void write(void* data, const void* host, std::int64_t bytes) = 0;
  virtual void read(void* host, const void* data, std::int64_t bytes) const = 0;

  /// What this kind of memory has in all, and has left. total 0: unknown.
  virtual MachineMemory limits() const = 0;
  /// Bytes of a range that are in memory now; the whole range where memory is taken at once.
  virtual std::int64_t resident_bytes(const std::byte* data, std::int64_t bytes) const = 0;
};

/// The host's memory. Large regions start on huge pages (2 MiB); pages that were never touched take none.
Provider& host_memory();

}  // namespace ztrain::memory
