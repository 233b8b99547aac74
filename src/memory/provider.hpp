#pragma once
// Provides the bytes of an arena, and the host's access to them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace ztrain::memory {

struct MachineMemory {
  std::int64_t total = 0;  ///< bytes of the machine, or of the job's control group if that has less
  /// Bytes that can be had without swapping; 0, as total, if /proc does not tell.
  std::int64_t available = 0;
  bool in_group = false;  ///< whether a control group bounds one of them
};

/// Returns the memory that the machine has for this process.
MachineMemory machine_memory();

/// Follows an amount of a MachineMemory that is in_group, in messages.
inline constexpr const char* of_control_group = " (within the limit of the job's control group)";

/// Returns `memory` within the limits of a process's control groups and those above them, with which batch
/// systems bound a job. groups is the text of /proc/PROCESS/cgroup, of version 1, 2 or both; root is where
/// they are mounted.
MachineMemory within_control_groups(MachineMemory memory, const std::string& groups, const std::string& root);

/// Called during an allocation with the bytes that are ready and the bytes in all. Calls come from any
/// thread, one at a time.
using AllocationProgress = std::function<void(std::int64_t done, std::int64_t of)>;

/// Memory of one kind: the host's, or a device's. Must outlive its allocations. By default it is the host's.
class Provider {
 public:
  virtual ~Provider() = default;

  /// Allocates bytes > 0, aligned to 4096 and all zero. `name` ("transient arena") is for messages. Throws
  /// Error with both figures if there is not that much.
  virtual std::byte* allocate(const std::string& name, std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) noexcept = 0;
  /// Makes later calls of allocate() that take long report to `progress`.
  virtual void report_progress_to(AllocationProgress) {}

  /// Returns whether the host may read and write it through its addresses.
  virtual bool host_accessible() const { return true; }

  // These run between work: the caller has made sure that nothing else is under way on the ranges. They
  // return when the bytes are in place.
  virtual void fill(void* data, int value, std::int64_t bytes) {
    std::memset(data, value, static_cast<std::size_t>(bytes));
  }
  virtual void write(void* data, const void* host, std::int64_t bytes) {
    std::memcpy(data, host, static_cast<std::size_t>(bytes));
  }
  virtual void read(void* host, const void* data, std::int64_t bytes) const {
    std::memcpy(host, data, static_cast<std::size_t>(bytes));
  }

  /// Returns what this kind of memory has in all and has left. total 0: unknown.
  virtual MachineMemory limits() const { return machine_memory(); }
  /// Returns the bytes of a range that are in memory now.
  virtual std::int64_t resident_bytes(const std::byte*, std::int64_t bytes) const { return bytes; }
};

/// Returns the host's memory. Large regions start on huge pages (2 MiB); pages that were never touched take
/// none.
Provider& host_memory();

}  // namespace ztrain::memory
