#pragma once
// Memory of kernel tests: kernels and the test itself reach it, on GPUs too. test_memory_cpu.cpp and
// test_memory_cuda.cpp provide it.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ztrain::test {

/// To be called before the kernel backend is initialised: a kernel has finished when its launch returns.
/// Unless ZTRAIN_TEST_LATE_LAUNCHES is set: then nothing waits but the test, when it looks at an Array, so
/// that kernels which are not ordered among each other, or whose operands are gone too soon, show.
void make_launches_wait();

/// The cudaStream_t of kernel tests, which orders itself with no other; null on CPUs.
void* test_stream();

/// Until the GPU has done all that it was given. Throws std::runtime_error when it failed.
void wait_for_launches();

/// The compute capability of the GPU that kernels run on, 90 for 9.0; 0 where they run on the CPU.
int test_gpu();

/// Why this GPU has no products of 8-bit floats; empty: it has, as CPUs always do.
std::string lack_of_fp8(bool rowwise);

/// Throws std::bad_alloc where there is no memory.
void* allocate_test_memory(std::size_t bytes);
void free_test_memory(void* memory) noexcept;

/// Whether kernels were launched since the test waited for them.
inline bool& launches_pending() {
  static bool pending = false;
  return pending;
}
inline void settle() {
  if (!std::exchange(launches_pending(), false)) return;
  wait_for_launches();
}

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

/// Elements that kernels read or write: a vector, which waits for launches before it shows or takes elements.
/// data() is for kernels; who looks through it settles first.
template <class T>
class Array : private std::vector<T, TestAllocator<T>> {
  using Base = std::vector<T, TestAllocator<T>>;

 public:
  using typename Base::const_iterator;
  using typename Base::iterator;
  using typename Base::size_type;
  using typename Base::value_type;

  using Base::Base;
  Array() = default;
  Array(Array&&) noexcept = default;
  Array& operator=(Array&&) noexcept = default;
  Array(const Array& other) : Base(other.settled()) {}
  Array& operator=(const Array& other) {
    Base::operator=(other.settled());
    return *this;
  }

  using Base::data;
  using Base::empty;
  using Base::size;

  iterator begin() { return settled().begin(); }
  iterator end() { return settled().end(); }
  const_iterator begin() const { return settled().begin(); }
  const_iterator end() const { return settled().end(); }
  T& operator[](size_type i) { return settled()[i]; }
  const T& operator[](size_type i) const { return settled()[i]; }
  T& front() { return settled().front(); }
  const T& front() const { return settled().front(); }
  T& back() { return settled().back(); }
  const T& back() const { return settled().back(); }
  void push_back(const T& value) { settled().push_back(value); }
  template <class... Arguments>
  void assign(Arguments&&... arguments) {
    settled().assign(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  void insert(Arguments&&... arguments) {
    settled().insert(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  void resize(Arguments&&... arguments) {
    settled().resize(std::forward<Arguments>(arguments)...);
  }
  bool operator==(const Array& other) const { return settled() == other.settled(); }

 private:
  Base& settled() {
    settle();
    return *this;
  }
  const Base& settled() const {
    settle();
    return *this;
  }
};

/// One object that kernels read or write; a temporary one lives until the launch has finished.
template <class T>
class Shared {
 public:
  explicit Shared(const T& value = {}) : one_(1, value) {}

  T* get() { return one_.data(); }
  T& operator*() { return one_[0]; }
  T* operator->() { return &one_[0]; }

 private:
  Array<T> one_;
};

}  // namespace ztrain::test
