#include "engine/job_memory.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ztrain::engine {

JobMemory::JobMemory(const std::vector<const program::Program*>& programs, memory::Arena::Guards guards,
                     memory::Provider& device, memory::Provider& host, memory::NvmeMemory* nvme)
    : nvme_(nvme), providers_{&device, &host, nvme} {
  for (int tier = 0; tier < program::tier_count; ++tier) {
    std::int64_t persistent = -1, transient = 0;
    for (const program::Program* p : programs) {
      const program::TierPlan& plan = p->plan[tier];
      ASSERT(persistent < 0 || persistent == plan.persistent_bytes,
             "program '{}' keeps {} bytes between steps, the others of its job {}", p->name,
             plan.persistent_bytes, persistent);
      persistent = plan.persistent_bytes;
      transient = std::max(transient, plan.transient_bytes);
    }
    const std::string name(program::name_of(static_cast<program::Tier>(tier)));
    if (persistent <= 0 && transient == 0) continue;
    ASSERT(providers_[tier] != nullptr, "the job keeps bytes on NVMe, and was given none");
    memory::Provider& provider = *providers_[tier];
    if (persistent > 0)
      regions_[tier].persistent =
          std::make_unique<memory::Arena>(name + ", kept between steps", persistent, guards, provider);
    if (transient > 0)
      regions_[tier].transient =
          std::make_unique<memory::Arena>(name + ", within a step", transient, guards, provider);
  }
}

std::byte* JobMemory::address(const program::Program& program, program::TensorId id) const {
  const program::Tensor& tensor = program.tensor(id);
  const program::Tensor& storage = program.tensor(program.storage(id));
  const Region& in_tier = region(storage.tier);
  const auto& arena = storage.persistent ? in_tier.persistent : in_tier.transient;
  ASSERT(arena && storage.address >= 0, "program '{}': tensor '{}' has no place in memory", program.name,
         tensor.name);
  return arena->at(storage.address) + tensor.offset;
}

void JobMemory::each_region(program::Tier tier,
                            const std::function<void(void* data, std::int64_t bytes)>& f) const {
  for (const memory::Arena* arena : {region(tier).persistent.get(), region(tier).transient.get()})
    arena ? f(arena->at(0), arena->bytes()) : f(nullptr, 0);
}

void JobMemory::clear_transient() const {
  for (int tier = 0; tier < program::tier_count; ++tier)
    if (const auto& arena = regions_[tier].transient)
      provider(static_cast<program::Tier>(tier)).fill(arena->at(0), 0, arena->bytes());
}

void JobMemory::check_guards() const {
  for (const Region& region : regions_)
    for (const memory::Arena* arena : {region.persistent.get(), region.transient.get()})
      if (arena) arena->check_guards();
}

std::int64_t JobMemory::total_bytes() const {
  std::int64_t total = 0;
  for (int t = 0; t < static_cast<int>(program::Tier::nvme); ++t)
    total += persistent_bytes(static_cast<program::Tier>(t)) + transient_bytes(static_cast<program::Tier>(t));
  return total;
}

std::int64_t JobMemory::resident_bytes() const {
  std::int64_t total = 0;
  for (const Region& region : regions_)
    for (const memory::Arena* arena : {region.persistent.get(), region.transient.get()})
      if (arena) total += arena->resident_bytes();
  return total;
}

}  // namespace ztrain::engine
