#include "tests/late_cuda/memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "tests/late_cuda/late_cuda.hpp"

namespace late_cuda {
namespace {

constexpr std::size_t page = 4096;
/// What CUDA promises, and no more: allocations of the device begin in the middle of a page.
constexpr std::size_t alignment = 256;
/// Bytes of a large page.
constexpr std::size_t large_page = std::size_t{2} << 20;
/// Of new memory. Floats of such bytes are small and negative, indices far outside.
constexpr int leftover = 0xa5;

/// Maps memory that begins with a large page. Memory is closed and opened for each operation, which costs
/// time by the number of its pages. Returns null if there is none.
void* map_pages(std::size_t bytes) {
  void* const all =
      mmap(nullptr, bytes + large_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  std::size_t room = bytes + large_page;
  void* begin = all;
  std::align(large_page, bytes, begin, room);
  const auto before = static_cast<std::size_t>(static_cast<std::byte*>(begin) - static_cast<std::byte*>(all));
  if (before > 0) munmap(all, before);
  if (room > bytes) munmap(static_cast<std::byte*>(begin) + bytes, room - bytes);
  madvise(begin, bytes, MADV_HUGEPAGE);
  return begin;
}

}  // namespace

void* Memory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t lead = kind_ == Kind::device ? alignment : 0;
  const std::size_t mapped = (bytes + lead + page - 1) / page * page;
  if (bytes == 0 || used_ + mapped > total_) return nullptr;
  void* const pages = map_pages(mapped);
  if (pages == nullptr) return nullptr;
  std::memset(pages, leftover, mapped);
  used_ += mapped;
  std::byte* const given = static_cast<std::byte*>(pages) + lead;
  const Region region{static_cast<std::byte*>(pages), mapped, bytes};
  regions_.emplace(given, region);
  protect(region);
  return given;
}

bool Memory::release(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(static_cast<std::byte*>(data));
  if (found == regions_.end() || found->second.pages == nullptr) return false;
  munmap(found->second.pages, found->second.mapped);
  used_ -= found->second.mapped;
  regions_.erase(found);
  return true;
}

bool Memory::adopt(void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* const begin = static_cast<std::byte*>(data);
  const auto after = regions_.upper_bound(begin + bytes - 1);
  if (bytes == 0 || used_ + bytes > total_) return false;
  if (after != regions_.begin()) {
    const auto& [given, region] = *std::prev(after);
    if (given + region.bytes > begin) return false;
  }
  used_ += bytes;
  regions_.emplace(begin, Region{nullptr, bytes, bytes});
  return true;
}

bool Memory::give_up(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(static_cast<std::byte*>(data));
  if (found == regions_.end() || found->second.pages != nullptr) return false;
  used_ -= found->second.mapped;
  regions_.erase(found);
  return true;
}

bool Memory::take_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (used_ + bytes > total_) return false;
  used_ += bytes;
  return true;
}

void Memory::give_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

bool Memory::contains(const void* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const begin = static_cast<const std::byte*>(data);
  auto after = regions_.upper_bound(const_cast<std::byte*>(begin));
  if (after == regions_.begin()) return false;
  const auto& [given, region] = *--after;
  return begin + bytes <= given + region.bytes;
}

std::size_t Memory::available() const {
  const std::lock_guard lock(mutex_);
  return total_ - used_;
}

void Memory::protect(const Region& region) const {
  if (kind_ == Kind::device)
    mprotect(region.pages, region.mapped, opened_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void Memory::open() {
  const std::lock_guard lock(mutex_);
  if (opened_++ > 0) return;
  for (const auto& [given, region] : regions_) protect(region);
}

void Memory::close() {
  const std::lock_guard lock(mutex_);
  if (--opened_ > 0) return;
  for (const auto& [given, region] : regions_) protect(region);
}

int Memory::shut() {
  const std::lock_guard lock(mutex_);
  const int opened = std::exchange(opened_, 0);
  for (const auto& [given, region] : regions_) protect(region);
  return opened;
}

void Memory::reopen(int opened) {
  const std::lock_guard lock(mutex_);
  opened_ = opened;
  for (const auto& [given, region] : regions_) protect(region);
}

Memory& device_memory() {
  static Memory memory(Memory::Kind::device, std::size_t{4} << 30);
  return memory;
}

Memory& pinned_memory() {
  static Memory memory(Memory::Kind::pinned, std::size_t{4} << 30);
  return memory;
}

bool is_device_memory(const void* data, std::size_t bytes) {
  return device_memory().contains(data, bytes);
}

Open::Open() {
  device_memory().open();
}
Open::~Open() {
  device_memory().close();
}

}  // namespace late_cuda
