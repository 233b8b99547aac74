#pragma once
// Memory of kernel tests: kernels and the test itself reach it, on GPUs too. test_memory_cpu.cpp and
// test_memory_cuda.cpp provide it.

#include <cstddef>
#include <vector>

namespace ztrain::test {

/// To be called before the kernel backend is initialised: a kernel has finished when its launch returns, so
/// that tests can look at what it wrote.
void make_launches_wait();

/// Throws std::bad_alloc where there is no memory.
void* allocate_test_memory(std::size_t bytes);
void free_test_memory(void* memory) noexcept;

template <class T>
struct TestAllocator {
  using value_type = T;

  TestAllocator() = default;
  template <class U>
  TestAllocator(const TestAllocator<U>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_test_memory(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) { free_test_memory(memory); }
  bool operator==(const TestAllocator&) const = default;
};

/// Elements that kernels read or write.
template <class T>
using Array = std::vector<T, TestAllocator<T>>;

/// One object that kernels read or write; a temporary one lives until the launch has finished.
template <class T>
class Shared {
 public:
  explicit Shared(const T& value = {}) : one_(1, value) {}

  T* get() { return one_.data(); }
  T& operator*() { return one_[0]; }
  T* operator->() { return one_.data(); }

 private:
  Array<T> one_;
};

}  // namespace ztrain::test
