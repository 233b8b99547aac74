#pragma once
// Counts calls to operator new, to prove that a step makes none. The counting operators are in
// allocation_count.cpp, which only the tests that count link (target ztrain_allocation_count); elsewhere
// AllocationPause costs an increment.

#include <cstdint>

namespace ztrain::telemetry {

/// Number of AllocationPause objects of this thread.
inline int& allocation_pauses() {
  static thread_local int pauses = 0;
  return pauses;
}

/// While it lives, allocations of this thread do not count. Stands around calls of libraries.
class AllocationPause {
 public:
  AllocationPause() { ++allocation_pauses(); }
  ~AllocationPause() { --allocation_pauses(); }
  AllocationPause(const AllocationPause&) = delete;
  AllocationPause& operator=(const AllocationPause&) = delete;
};

/// While it lives, calls to operator new on all threads are counted. Only one may live at a time.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  std::int64_t calls() const;
  std::int64_t bytes() const;
};

}  // namespace ztrain::telemetry
