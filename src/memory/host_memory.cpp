#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "memory/huge_buffer.hpp"
#include "memory/provider.hpp"

namespace ztrain::memory {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t large = 32 * huge_page;  // for less, whole huge pages would blur the resident size

[[noreturn]] void out_of_memory(const std::string& name, std::int64_t bytes, const std::string& reason) {
  const MachineMemory machine = machine_memory();
  fail("out of host memory: the {} needs {}, the machine has {} available of {}{}{}{}", name,
       format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(machine.available)),
       format_bytes(static_cast<double>(machine.total)), machine.in_group ? of_control_group : "",
       reason.empty() ? "" : ": ", reason);
}

/// Returns the bytes of the mapping of a range.
std::size_t mapped(std::int64_t bytes) {
  return static_cast<std::size_t>(round_up(bytes, page));
}

/// Maps pages. Returns null if the system refuses.
std::byte* map_pages(std::size_t size) {
  void* const mapping =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
}

/// Maps pages from the start of a huge page on, and asks for huge pages.
std::byte* map_huge_pages(std::size_t size) {
  std::byte* const begin = map_pages(size + huge_page);
  if (begin == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const auto before = static_cast<std::size_t>(-address % huge_page);
  if (before > 0) munmap(begin, before);
  if (before < huge_page) munmap(begin + before + size, huge_page - before);
  madvise(begin + before, size, MADV_HUGEPAGE);  // this is a hint: small pages work as well
  return begin + before;
}

class HostMemory final : public Provider {
 public:
  std::byte* allocate(const std::string& name, std::int64_t bytes) override {
    // Mapping never fails for lack of memory. Touching does, and then the kernel kills the process without a
    // message.
    const MachineMemory machine = machine_memory();
    if (machine.total > 0 && bytes > machine.available) out_of_memory(name, bytes, "");
    std::byte* const data = bytes >= large ? map_huge_pages(mapped(bytes)) : map_pages(mapped(bytes));
    if (data == nullptr) out_of_memory(name, bytes, std::strerror(errno) + limit_on_memory());
    return data;
  }

  void release(std::byte* data, std::int64_t bytes) noexcept override { munmap(data, mapped(bytes)); }

  std::int64_t resident_bytes(const std::byte* data, std::int64_t bytes) const override {
    const std::size_t size = mapped(bytes);
    std::vector<unsigned char> pages(size / page);
    if (mincore(const_cast<std::byte*>(data), size, pages.data()) != 0) return 0;
    return page * std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  }
};

}  // namespace

HugeBuffer::HugeBuffer(std::int64_t bytes)
    : bytes_(taken(bytes)), data_(map_huge_pages(static_cast<std::size_t>(bytes_))) {}

void HugeBuffer::prefer_node(int node) const {
  constexpr int most_nodes = 1024;
  constexpr int bits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= most_nodes) return;
  std::array<unsigned long, most_nodes / bits> nodes{};
  nodes[at(node / bits)] = 1ul << (node % bits);
  syscall(SYS_mbind, data_, static_cast<unsigned long>(bytes_), MPOL_PREFERRED, nodes.data(),
          static_cast<unsigned long>(most_nodes), 0u);
}

void HugeBuffer::touch(const AllocationProgress& progress) const {
  constexpr std::int64_t part = 32 * huge_page;
  const auto parts = static_cast<int>((bytes_ + part - 1) / part);
  std::mutex mutex;
  std::int64_t done = 0;
  in_parallel(parts, [&](int i) {
    const std::int64_t begin = i * part, end = std::min(bytes_, begin + part);
    for (std::int64_t at = begin; at < end; at += page) {
      // volatile keeps the compiler from leaving out a write of the value that is there.
      volatile std::byte& first = data_[at];
      first = std::byte{0};
    }
    const std::lock_guard lock(mutex);
    done += end - begin;
    if (progress) progress(done, bytes_);
  });
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

Provider& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace ztrain::memory
