#include "memory/arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "memory/machine.hpp"

namespace ztrain::memory {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t huge_page = std::int64_t{2} << 20;
constexpr std::int64_t large = 32 * huge_page;  // below this, whole huge pages would blur the resident size
constexpr std::byte guard_pattern{0xA5};

[[noreturn]] void out_of_memory(const std::string& name, std::int64_t bytes, const char* reason) {
  const MachineMemory machine = machine_memory();
  fail("out of host memory: the {} arena needs {}, the machine has {} available of {}{}{}", name,
       format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(machine.available)),
       format_bytes(static_cast<double>(machine.total)), *reason ? ": " : "", reason);
}

}  // namespace

Arena::Arena(std::string name, std::int64_t bytes, Guards guards)
    : name_(std::move(name)), bytes_(bytes), guard_(guards == Guards::on ? page : 0) {
  REQUIRE(bytes >= 0, "the {} arena cannot have {} bytes", name_, bytes);
  if (bytes + 2 * guard_ == 0) return;
  // Mapping never fails for lack of memory, touching does, and then the kernel kills the process without a
  // word.
  const MachineMemory machine = machine_memory();
  if (machine.total > 0 && bytes > machine.available) out_of_memory(name_, bytes, "");
  const bool huge = bytes >= large;
  const std::int64_t slack = huge ? huge_page : 0;
  mapped_ = static_cast<std::size_t>(round_up(bytes + 2 * guard_, page) + slack);
  mapping_ =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) out_of_memory(name_, bytes, std::strerror(errno));
  auto address = reinterpret_cast<std::uintptr_t>(mapping_) + static_cast<std::uintptr_t>(guard_);
  if (huge) address = (address + huge_page - 1) / huge_page * huge_page;
  base_ = reinterpret_cast<std::byte*>(address);
  if (huge) madvise(base_, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a hint: small pages do as well
  if (guard_ > 0) {
    std::memset(base_ - guard_, static_cast<int>(guard_pattern), static_cast<std::size_t>(guard_));
    std::memset(base_ + bytes_, static_cast<int>(guard_pattern), static_cast<std::size_t>(guard_));
  }
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      guard_(std::exchange(other.guard_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)),
      base_(std::exchange(other.base_, nullptr)) {}

void Arena::poison(std::int64_t offset, std::int64_t bytes) {
  REQUIRE(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_,
          "bytes {} to {} are outside the {} arena of {} bytes", offset, offset + bytes, name_, bytes_);
  if (bytes > 0) std::memset(base_ + offset, 0xFF, static_cast<std::size_t>(bytes));
}

void Arena::check_guards() const {
  for (std::int64_t i = 1; i <= guard_; ++i)
    REQUIRE(base_[-i] == guard_pattern, "the byte {} before the {} arena was overwritten", i, name_);
  for (std::int64_t i = 0; i < guard_; ++i)
    REQUIRE(base_[bytes_ + i] == guard_pattern,
            "byte {} was written, behind the end of the {} arena of {} bytes", bytes_ + i, name_, bytes_);
}

std::int64_t Arena::resident_bytes() const {
  std::vector<unsigned char> pages(
      static_cast<std::size_t>(ceil_div(static_cast<std::int64_t>(mapped_), page)));
  if (mapping_ == nullptr || mincore(mapping_, mapped_, pages.data()) != 0) return 0;
  const auto in_memory = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  return in_memory * page;
}

}  // namespace ztrain::memory
