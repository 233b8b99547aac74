#include <cstdlib>
#include <new>

#include "tests/support/test_memory.hpp"

namespace ztrain::test {

void make_launches_wait() {}

void* allocate_test_memory(std::size_t bytes) {
  if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void free_test_memory(void* memory) noexcept {
  std::free(memory);
}

}  // namespace ztrain::test
