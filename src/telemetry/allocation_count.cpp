#include "telemetry/allocation_count.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// These are global because operators new and delete have no object to keep state in.
std::atomic<bool> counting{false};
std::atomic<std::int64_t> calls{0};
std::atomic<std::int64_t> bytes{0};

void count(std::size_t size) noexcept {
  if (!counting.load(std::memory_order_relaxed) || ztrain::telemetry::allocation_pauses() > 0) return;
  calls.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}

void* counted(std::size_t size) {
  count(size);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* counted(std::size_t size, std::align_val_t alignment) {
  count(size);
  const auto align = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(align, (size + align - 1) / align * align);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The array and nothrow forms of the standard library call these.
void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace ztrain::telemetry {

AllocationCount::AllocationCount() {
  ::calls = 0;
  ::bytes = 0;
  counting = true;
}

AllocationCount::~AllocationCount() {
  counting = false;
}

std::int64_t AllocationCount::calls() const {
  return ::calls;
}
std::int64_t AllocationCount::bytes() const {
  return ::bytes;
}

}  // namespace ztrain::telemetry
