#include "memory/arena.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"

namespace ztrain::memory {
namespace {

constexpr std::int64_t guard_bytes = 4096;
constexpr std::byte guard_pattern{0xA5};

}  // namespace

Arena::Arena(std::string name, std::int64_t bytes, Guards guards, Provider& provider)
    : name_(std::move(name)),
      provider_(&provider),
      bytes_(bytes),
      guard_(guards == Guards::on ? guard_bytes : 0) {
  ASSERT(bytes >= 0, "the {} arena cannot have {} bytes", name_, bytes);
  if (bytes + 2 * guard_ == 0) return;
  allocation_ = provider.allocate(name_ + " arena", bytes + 2 * guard_);
  base_ = allocation_ + guard_;
  if (guard_ == 0) return;
  provider.fill(base_ - guard_, std::to_integer<int>(guard_pattern), guard_);
  provider.fill(base_ + bytes_, std::to_integer<int>(guard_pattern), guard_);
}

Arena::~Arena() {
  if (allocation_ != nullptr) provider_->release(allocation_, bytes_ + 2 * guard_);
}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      provider_(other.provider_),
      bytes_(std::exchange(other.bytes_, 0)),
      guard_(std::exchange(other.guard_, 0)),
      allocation_(std::exchange(other.allocation_, nullptr)),
      base_(std::exchange(other.base_, nullptr)) {}

void Arena::poison(std::int64_t offset, std::int64_t bytes) {
  ASSERT(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_,
         "bytes {} to {} are outside the {} arena of {} bytes", offset, offset + bytes, name_, bytes_);
  if (bytes > 0) provider_->fill(base_ + offset, 0xFF, bytes);
}

void Arena::check_guards() const {
  if (guard_ == 0) return;
  std::vector<std::byte> zone(static_cast<std::size_t>(guard_));
  provider_->read(zone.data(), base_ - guard_, guard_);
  for (std::int64_t i = 1; i <= guard_; ++i)
    ASSERT(zone[static_cast<std::size_t>(guard_ - i)] == guard_pattern,
           "the byte {} before the {} arena was overwritten", i, name_);
  provider_->read(zone.data(), base_ + bytes_, guard_);
  for (std::int64_t i = 0; i < guard_; ++i)
    ASSERT(zone[static_cast<std::size_t>(i)] == guard_pattern,
           "byte {} was written, behind the end of the {} arena of {} bytes", bytes_ + i, name_, bytes_);
}

std::int64_t Arena::resident_bytes() const {
  return allocation_ == nullptr ? 0 : provider_->resident_bytes(allocation_, bytes_ + 2 * guard_);
}

}  // namespace ztrain::memory
