#include "runtime/device/closed_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace ztrain::runtime {

void ClosedMemory::set(bool open) const {
  if (open == open_) return;
  open_ = open;
  for (const Region& r : regions_)
    mprotect(r.data, static_cast<std::size_t>(r.bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

std::byte* ClosedMemory::allocate(const std::string& name, std::int64_t bytes) {
  std::byte* const data = memory::host_memory().allocate(name, bytes);
  if (mprotect(data, static_cast<std::size_t>(bytes), open_ ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    fail("cannot close the memory of the {} to the host: {}", name, std::strerror(errno));
  regions_.push_back({data, bytes});
  return data;
}

void ClosedMemory::release(std::byte* data, std::int64_t bytes) noexcept {
  std::erase_if(regions_, [&](const Region& r) { return r.data == data; });
  memory::host_memory().release(data, bytes);
}

void ClosedMemory::require_idle(const char* what) const {
  REQUIRE(idle_(), "the host {} memory of the device while work is queued that may use it", what);
}

void ClosedMemory::fill(void* data, int value, std::int64_t bytes) {
  require_idle("fills");
  const Opened open(*this);
  memory::host_memory().fill(data, value, bytes);
}

void ClosedMemory::write(void* data, const void* host, std::int64_t bytes) {
  require_idle("writes");
  const Opened open(*this);
  memory::host_memory().write(data, host, bytes);
}

void ClosedMemory::read(void* host, const void* data, std::int64_t bytes) const {
  require_idle("reads");
  const Opened open(*this);
  memory::host_memory().read(host, data, bytes);
}

}  // namespace ztrain::runtime
