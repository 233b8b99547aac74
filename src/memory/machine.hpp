#pragma once
// How much memory the machine has for us.

#include <cstdint>
#include <string>

namespace ztrain::memory {

struct MachineMemory {
  std::int64_t total = 0;  ///< bytes; of the machine, or of the job's control group where that is smaller
  std::int64_t available =
      0;  ///< bytes that can be had without swapping; 0 with total 0 where /proc does not tell
};

MachineMemory machine_memory();

}  // namespace ztrain::memory
