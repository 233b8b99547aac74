#include "memory/nvme_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "memory/nvme/files.hpp"

namespace ztrain::memory {
namespace {

/// Bytes that read() and write() hold in memory at once.
constexpr std::int64_t chunk = std::int64_t{4} << 20;

void carry_out(const std::unique_ptr<NvmeStore::Transfer>& transfer) {
  transfer->start();
  transfer->wait();
}

}  // namespace

struct NvmeMemory::Region {
  Region(std::byte* at, std::int64_t size, const NvmeOptions& options)
      : base(at), bytes(size), store(options, size) {}

  std::byte* base;
  std::int64_t bytes;
  NvmeStore store;

  std::int64_t offset(const void* data) const { return static_cast<const std::byte*>(data) - base; }
  bool contains(const std::byte* data) const { return base <= data && data < base + bytes; }
  /// Returns memory for any of the pieces that each_chunk visits.
  static NvmePages memory_for(std::int64_t count) {
    return nvme_pages(std::min(chunk, count + 2 * nvme_page));
  }
  /// Visits [data, data + bytes) piece by piece, each with the whole pages around it.
  template <class Visit>
  void each_chunk(const void* data, std::int64_t count, Visit visit) const {
    const std::int64_t begin = offset(data), end = begin + count;
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t first = at / nvme_page * nvme_page, last = std::min(end, first + chunk);
      visit(first, std::min(bytes, round_up(last, nvme_page)) - first, at, last);
      at = last;
    }
  }
};

NvmeMemory::NvmeMemory(NvmeOptions options) : options_(std::move(options)) {}

NvmeMemory::~NvmeMemory() {
  for (const auto& region : regions_) munmap(region->base, static_cast<std::size_t>(region->bytes));
}

std::byte* NvmeMemory::allocate(const std::string& name, std::int64_t bytes) {
  REQUIRE(!options_.paths.empty(),
          "the {} needs {} on NVMe, and no folder is given for it: set offload.nvme_path", name,
          format_bytes(static_cast<double>(bytes)));
  const std::int64_t whole = round_up(bytes, nvme_page);
  void* const mapping = mmap(nullptr, static_cast<std::size_t>(whole), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(mapping != MAP_FAILED, "the {}: no addresses for {}: {}", name,
          format_bytes(static_cast<double>(bytes)), std::strerror(errno));
  auto* const base = static_cast<std::byte*>(mapping);
  try {
    regions_.push_back(std::make_unique<Region>(base, whole, options_));
  } catch (...) {
    munmap(mapping, static_cast<std::size_t>(whole));
    throw;
  }
  if (regions_.size() > 1) return base;
  speed_ = regions_.back()->store.measure();
  fill(base, 0, std::min(whole, speed_.bytes));  // the measurement wrote over these bytes
  return base;
}

void NvmeMemory::release(std::byte* data, std::int64_t) noexcept {
  const auto own = std::ranges::find_if(regions_, [&](const auto& r) { return r->base == data; });
  if (own == regions_.end()) return;
  munmap(data, static_cast<std::size_t>((*own)->bytes));
  regions_.erase(own);
}

NvmeMemory::Region& NvmeMemory::region_of(const std::byte* data) const {
  const auto own = std::ranges::find_if(regions_, [&](const auto& r) { return r->contains(data); });
  ASSERT(own != regions_.end(), "{} is no address of NVMe memory", static_cast<const void*>(data));
  return **own;
}

void NvmeMemory::fill(void* data, int value, std::int64_t bytes) {
  if (bytes == 0) return;
  const NvmePages memory = nvme_pages(std::min(round_up(bytes, nvme_page), chunk));
  const std::int64_t some = std::min(bytes, chunk);
  std::memset(memory.get(), value, static_cast<std::size_t>(some));
  for (std::int64_t at = 0; at < bytes; at += some)
    write(static_cast<std::byte*>(data) + at, memory.get(), std::min(some, bytes - at));
}

void NvmeMemory::write(void* data, const void* host, std::int64_t bytes) {
  if (bytes == 0) return;
  Region& region = region_of(static_cast<std::byte*>(data));
  const NvmePages memory = Region::memory_for(bytes);
  const auto* from = static_cast<const std::byte*>(host);
  region.each_chunk(
      data, bytes, [&](std::int64_t first, std::int64_t size, std::int64_t begin, std::int64_t end) {
        if (begin > first || end < first + size) carry_out(region.store.read(first, memory.get(), size));
        std::memcpy(memory.get() + (begin - first), from, static_cast<std::size_t>(end - begin));
        from += end - begin;
        carry_out(region.store.write(first, memory.get(), size));
      });
}

void NvmeMemory::read(void* host, const void* data, std::int64_t bytes) const {
  if (bytes == 0) return;
  Region& region = region_of(static_cast<const std::byte*>(data));
  const NvmePages memory = Region::memory_for(bytes);
  auto* to = static_cast<std::byte*>(host);
  region.each_chunk(data, bytes,
                    [&](std::int64_t first, std::int64_t size, std::int64_t begin, std::int64_t end) {
                      carry_out(region.store.read(first, memory.get(), size));
                      std::memcpy(to, memory.get() + (begin - first), static_cast<std::size_t>(end - begin));
                      to += end - begin;
                    });
}

MachineMemory NvmeMemory::limits() const {
  MachineMemory all;
  for (const auto& folder : options_.paths) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(folder, error);
    if (error) continue;
    all.total += static_cast<std::int64_t>(space.capacity);
    all.available += static_cast<std::int64_t>(space.available);
  }
  return all;
}

std::unique_ptr<NvmeStore::Transfer> NvmeMemory::transfer(bool writes, std::byte* kept, std::byte* host,
                                                          std::int64_t bytes, bool to_end) {
  Region& region = region_of(kept);
  const std::int64_t offset = region.offset(kept);
  if (offset % nvme_page != 0 || reinterpret_cast<std::uintptr_t>(host) % nvme_page != 0) return nullptr;
  if (writes && !to_end && bytes % nvme_page != 0) return nullptr;
  return writes ? region.store.write(offset, host, bytes) : region.store.read(offset, host, bytes);
}

void NvmeMemory::register_memory(void* host, std::int64_t bytes) {
  for (const auto& region : regions_) region->store.register_memory(host, bytes);
}

std::string NvmeMemory::description() const {
  if (regions_.empty()) return "";
  return fmt::format("{}; writes {}/s, reads {}/s", regions_.front()->store.description(),
                     format_bytes(speed_.write), format_bytes(speed_.read));
}

std::string NvmeMemory::warning() const {
  return regions_.empty() ? "" : nvme_warning(speed_);
}

}  // namespace ztrain::memory
