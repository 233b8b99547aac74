#include "job/held_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "job/require_memory.hpp"

namespace ztrain::job {

void DeviceReadings::arenas_allocated(std::int64_t in_use) {
  arenas_ = in_use - last_;
  add(in_use);
}

void DeviceReadings::add(std::int64_t in_use) {
  last_ = in_use;
  peak_ = std::max(peak_, in_use);
}

/// Ranks that share a GPU see each other's allocations: they read it together, and go on together.
HeldMemory::HeldMemory(const runtime::Session& session, runtime::Device& device) : device_(device) {
  session.barrier();
  const bool own = has_memory_of_its_own(device);
  const memory::MachineMemory found = own ? device.memory().limits() : memory::MachineMemory{};
  sharing_ = ranks_on(session, device);
  if (own) readings_.emplace((found.total - found.available) / sharing_);
}

void HeldMemory::arenas_allocated(const runtime::Session& session) {
  if (!readings_) return;
  session.barrier();
  readings_->arenas_allocated(in_use());
  session.barrier();
}

void HeldMemory::look() {
  if (readings_) readings_->add(in_use());
}

std::int64_t HeldMemory::in_use() const {
  const memory::MachineMemory gpu = device_.memory().limits();
  return (gpu.total - gpu.available) / sharing_;
}

std::int64_t HeldMemory::planned(const runtime::Device& device, const engine::JobMemory& memory) {
  const auto tier = program::Tier::device;
  return has_memory_of_its_own(device) ? memory.persistent_bytes(tier) + memory.transient_bytes(tier)
                                       : memory.total_bytes();
}

std::int64_t HeldMemory::outside(const engine::JobMemory& memory) const {
  return readings_ ? readings_->outside() : runtime::resident_bytes() - memory.resident_bytes();
}

std::int64_t HeldMemory::peak() const {
  return readings_ ? readings_->peak() : runtime::peak_resident_bytes();
}

std::optional<std::int64_t> HeldMemory::arenas() const {
  return readings_ ? std::optional(readings_->arenas()) : std::nullopt;
}

std::string HeldMemory::outside_text() const {
  if (!readings_) return "code, libraries and their compiled primitives, MPI";
  return fmt::format(
      "{} when the GPU was opened (CUDA's context, other processes), {} since (libraries, NCCL)",
      format_bytes(readings_->opened()), format_bytes(readings_->outside() - readings_->opened()));
}

std::string HeldMemory::peak_text(const engine::JobMemory& memory) const {
  if (!readings_) return "";
  const memory::MachineMemory gpu = device_.memory().limits();
  return fmt::format(
      "the arenas took {} of the GPU's memory for {} planned; at the peak {} of {} were free. Other "
      "processes on it count{}\n",
      format_bytes(readings_->arenas()), format_bytes(planned(device_, memory)),
      format_bytes(gpu.total - readings_->peak() * sharing_), format_bytes(gpu.total),
      sharing_ > 1 ? fmt::format(", and its {} ranks have even shares", sharing_) : "");
}

}  // namespace ztrain::job
