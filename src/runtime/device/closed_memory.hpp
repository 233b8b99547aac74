#pragma once
// Memory that the host may reach only while it plays the device. At other times a read or a write is a
// segmentation fault.

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "memory/provider.hpp"

namespace ztrain::runtime {

class ClosedMemory final : public memory::Provider {
 public:
  /// idle returns whether no work is under way; otherwise reads and writes by the host are refused.
  explicit ClosedMemory(std::function<bool()> idle) : idle_(std::move(idle)) {}

  /// While one lives, the memory is open or closed, whatever it was before.
  class Access {
   public:
    Access(const ClosedMemory& memory, bool open) : memory_(memory), before_(memory.open_) {
      memory_.set(open);
    }
    ~Access() { memory_.set(before_); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    const ClosedMemory& memory_;
    bool before_;
  };
  struct Opened : Access {
    explicit Opened(const ClosedMemory& memory) : Access(memory, true) {}
  };
  /// Closes the memory to work that is the host's.
  struct Closed : Access {
    explicit Closed(const ClosedMemory& memory) : Access(memory, false) {}
  };

  std::byte* allocate(const std::string& name, std::int64_t bytes) override {
    std::byte* const data = memory::host_memory().allocate(name, bytes);
    if (mprotect(data, static_cast<std::size_t>(bytes), open_ ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
      fail("cannot close the memory of the {} to the host: {}", name, std::strerror(errno));
    regions_.push_back({data, bytes});
    return data;
  }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    std::erase_if(regions_, [&](const Region& r) { return r.data == data; });
    memory::host_memory().release(data, bytes);
  }
  bool host_accessible() const override { return false; }
  // These throw Error unless idle.
  void fill(void* data, int value, std::int64_t bytes) override {
    require_idle("fills");
    const Opened open(*this);
    memory::host_memory().fill(data, value, bytes);
  }
  void write(void* data, const void* host, std::int64_t bytes) override {
    require_idle("writes");
    const Opened open(*this);
    memory::host_memory().write(data, host, bytes);
  }
  void read(void* host, const void* data, std::int64_t bytes) const override {
    require_idle("reads");
    const Opened open(*this);
    memory::host_memory().read(host, data, bytes);
  }
  std::int64_t resident_bytes(const std::byte* data, std::int64_t bytes) const override {
    return memory::host_memory().resident_bytes(data, bytes);
  }

 private:
  struct Region {
    std::byte* data;
    std::int64_t bytes;
  };
  void set(bool open) const {
    if (open == open_) return;
    open_ = open;
    for (const Region& r : regions_)
      mprotect(r.data, static_cast<std::size_t>(r.bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  void require_idle(const char* what) const {
    REQUIRE(idle_(), "the host {} memory of the device while work is queued that may use it", what);
  }

  std::function<bool()> idle_;
  std::vector<Region> regions_;
  mutable bool open_ = false;
};

}  // namespace ztrain::runtime
