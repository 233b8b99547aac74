#include "memory/nvme_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "files/file.hpp"
#include "memory/nvme/files.hpp"
#include "memory/nvme/work.hpp"

namespace ztrain::memory {
namespace {

constexpr double slow = 100e6;  ///< bytes per second below which drives are hardly NVMe

std::unique_ptr<NvmeCarrier> make_carrier(const NvmeOptions& options, NvmeWork& work, NvmeSteps steps,
                                          NvmeSystem& system, std::string& refused) {
  std::string why;
  const int error = system.allow_ring();
  if (error != 0) why = std::strerror(error);
  auto ring = error == 0 ? make_nvme_ring(work, steps, options.depth, why) : nullptr;
  if (ring != nullptr) return ring;
  refused = "no io_uring: " + why;
  return make_nvme_threads(work, steps, options.threads);
}

}  // namespace

/// State that transfers need of their store, as long as any of them exists.
struct NvmeStore::Core {
  NvmeOptions options;
  std::int64_t bytes;
  std::shared_ptr<NvmeSystem> system;
  NvmeFiles files;
  std::vector<std::uint64_t> sums;  ///< checksum of each page, see NvmeRequest; empty: none are kept
  NvmeWork work;
  std::string refused;  ///< what the system does not allow, and why
  std::unique_ptr<NvmeCarrier> carrier;

  Core(const NvmeOptions& o, std::int64_t size, std::shared_ptr<NvmeSystem> s)
      : options(o),
        bytes(size),
        system(std::move(s)),
        files(o.paths, size, o.block_bytes, *system),
        sums(o.checksums ? static_cast<std::size_t>((size + nvme_page - 1) / nvme_page) : 0),
        carrier(make_carrier(o, work, NvmeSteps(work, *system), *system, refused)) {}
};

struct NvmeStore::Transfer::Parts {
  NvmeJob job;
  NvmePages tail;
};

std::string nvme_warning(const NvmeSpeed& speed) {
  if (std::min(speed.write, speed.read) >= slow) return "";
  return fmt::format(
      "{}: writes {}/s and reads {}/s, which is slow for NVMe drives: are the folders on drives of this "
      "node, and not on a network?",
      nvme_key, format_decimal_bytes(speed.write), format_decimal_bytes(speed.read));
}

NvmeStore::Transfer::Transfer(std::shared_ptr<Core> core, std::unique_ptr<Parts> parts)
    : core_(std::move(core)), parts_(std::move(parts)) {}

NvmeStore::Transfer::~Transfer() {
  if (!started_) return;
  parts_->job.failed = true;
  core_->work.wait_for(parts_->job);
}

void NvmeStore::Transfer::start() {
  ASSERT(!started_, "an NVMe transfer is started again before it was waited for");
  started_ = true;
  NvmeJob& job = parts_->job;
  job.failed = false;
  job.failure = nullptr;
  job.left = std::ssize(job.requests);
  if (job.requests.empty()) return;
  core_->work.add(job);
  core_->carrier->wake();
}

bool NvmeStore::Transfer::test() {
  if (!started_) return true;
  if (parts_->job.left.load(std::memory_order_acquire) > 0) return false;
  finish();
  return true;
}

void NvmeStore::Transfer::wait() {
  if (!started_) return;
  core_->work.wait_for(parts_->job);
  finish();
}

void NvmeStore::Transfer::finish() {
  started_ = false;
  const NvmeJob& job = parts_->job;
  if (job.failure != nullptr) {
    const NvmeRequest& request = *job.failure;
    const std::string folder = core_->files.folder(request.file).string();
    REQUIRE(job.error != 0,
            "{}: {} bytes from byte {} of the file in '{}' on are not what was written there: the drive, or "
            "what connects it, spoils bytes: use another one",
            nvme_key, nvme_page, request.offset + request.done, folder);
    fail("{}: cannot {} {} bytes at byte {} of the file in '{}': {}", nvme_key, job.writes ? "write" : "read",
         request.bytes - request.done, request.offset + request.done, folder, text_of_errno(job.error));
  }
}

NvmeStore::NvmeStore(const NvmeOptions& options, std::int64_t bytes, std::shared_ptr<NvmeSystem> system)
    : core_(std::make_shared<Core>(options, bytes, std::move(system))) {}

NvmeStore::~NvmeStore() = default;

std::unique_ptr<NvmeStore::Transfer> NvmeStore::prepare(bool writes, std::int64_t offset, std::byte* memory,
                                                        std::int64_t bytes) {
  ASSERT(offset % nvme_page == 0 && reinterpret_cast<std::uintptr_t>(memory) % nvme_page == 0,
         "an NVMe transfer of byte {} of the store at address {} is not on pages", offset,
         static_cast<const void*>(memory));
  ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= core_->bytes,
         "bytes {} to {} are outside the NVMe store of {} bytes", offset, offset + bytes, core_->bytes);
  auto parts = std::make_unique<Transfer::Parts>();
  NvmeJob& job = parts->job;
  job.writes = writes;
  const std::int64_t whole = bytes / nvme_page * nvme_page;
  const auto add = [&](std::int64_t at, std::byte* of, std::int64_t count) {
    const auto place = core_->files.place(offset + at);
    const std::int64_t size = std::min(count, place.to_border);
    NvmeRequest& request = job.requests.emplace_back();
    request.job = &job;
    request.file = place.file;
    request.descriptor = core_->files.descriptor(place.file);
    request.offset = place.offset;
    request.memory = of;
    request.bytes = size;
    if (!core_->sums.empty())
      request.sums = &core_->sums[static_cast<std::size_t>((offset + at) / nvme_page)];
    return size;
  };
  for (std::int64_t at = 0; at < whole;) at += add(at, memory + at, whole - at);
  if (bytes > whole) {
    parts->tail = nvme_pages(nvme_page);
    add(whole, parts->tail.get(), nvme_page);
    job.requests.back().tail = memory + whole;
    job.requests.back().tail_bytes = bytes - whole;
  }
  return std::make_unique<Transfer>(core_, std::move(parts));
}

std::unique_ptr<NvmeStore::Transfer> NvmeStore::read(std::int64_t offset, void* to, std::int64_t bytes) {
  return prepare(false, offset, static_cast<std::byte*>(to), bytes);
}

std::unique_ptr<NvmeStore::Transfer> NvmeStore::write(std::int64_t offset, const void* from,
                                                      std::int64_t bytes) {
  return prepare(true, offset, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
}

void NvmeStore::register_memory(void* memory, std::int64_t bytes) {
  ASSERT(reinterpret_cast<std::uintptr_t>(memory) % nvme_page == 0, "NVMe memory at {} is not on pages",
         memory);
  if (bytes == 0) return;
  const int error = core_->carrier->register_memory(static_cast<std::byte*>(memory), bytes);
  if (error != 0) core_->refused = fmt::format("no fixed buffers: {}", std::strerror(error));
}

NvmeSpeed NvmeStore::measure() {
  constexpr double long_enough = 0.2;  // seconds of the measurement
  const std::int64_t span = core_->options.depth * core_->options.block_bytes;
  const std::int64_t bytes = std::min(core_->bytes, 2 * span), most = std::min(core_->bytes, 16 * span);
  const NvmePages memory = nvme_pages(bytes);
  const auto speed_of = [&](bool writes) {
    double seconds = 0;
    std::int64_t at = 0;
    while (at < most && seconds < long_enough) {
      const std::int64_t part = std::min(bytes, most - at);
      const auto transfer = prepare(writes, at, memory.get(), part);
      const double begin = now();
      transfer->start();
      transfer->wait();
      seconds += now() - begin;
      at += part;
    }
    return static_cast<double>(at) / seconds;
  };
  const double write = speed_of(true);
  return {write, speed_of(false), most};
}

std::string NvmeStore::description() const {
  const NvmeOptions& o = core_->options;
  return fmt::format("{}{}, {}, depth {} x {}{}", core_->carrier->description(),
                     core_->refused.empty() ? "" : fmt::format(" ({})", core_->refused),
                     core_->files.description(), core_->carrier->depth(),
                     format_bytes(static_cast<double>(o.block_bytes)), o.checksums ? ", checksums" : "");
}

}  // namespace ztrain::memory
