#pragma once
// Whether launches call operator new: ours do not, but Kokkos' on GPUs do on their own, so that it is looked
// at on CPUs alone.

#include <gtest/gtest.h>

#include "telemetry/allocation_count.hpp"
#include "tests/support/test_memory.hpp"

namespace ztrain::test {

/// Why a test of nothing else is skipped where test_gpu() is not 0.
inline constexpr const char* kokkos_allocates = "Kokkos' launches on GPUs call operator new themselves";

/// On CPUs nothing may be allocated while it lives.
class LaunchAllocations {
 public:
  LaunchAllocations() = default;
  LaunchAllocations(const LaunchAllocations&) = delete;
  LaunchAllocations& operator=(const LaunchAllocations&) = delete;
  ~LaunchAllocations() {
    if (test_gpu() == 0) {
      EXPECT_EQ(count_.calls(), 0) << "a launch called operator new";
    }
  }

 private:
  telemetry::AllocationCount count_;
};

}  // namespace ztrain::test
