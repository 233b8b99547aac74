#include <cuda_runtime_api.h>

#include <cstdlib>
#include <new>

#include "tests/support/test_memory.hpp"

namespace ztrain::test {

/// The driver reads it when it is initialised.
void make_launches_wait() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
}

/// Managed memory: its pages follow whoever touches them.
void* allocate_test_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, bytes > 0 ? bytes : 1) != cudaSuccess) throw std::bad_alloc();
  return memory;
}

/// An error here is one of an earlier kernel, which its own launch reports.
void free_test_memory(void* memory) noexcept {
  static_cast<void>(cudaFree(memory));
}

}  // namespace ztrain::test
