#pragma once
// The memory of a job: per tier one persistent region, at the same addresses for all its Programs, and one
// transient region as large as the largest of them needs. Nothing else is allocated for tensors.

#include <functional>
#include <memory>

#include "memory/arena.hpp"
#include "memory/nvme_memory.hpp"
#include "program/ir/program.hpp"

namespace ztrain::engine {

class JobMemory {
 public:
  /// Throws Error when the programs' persistent tensors differ, or when the memory cannot be had.
  /// Tier::device comes from `device`, Tier::host from `host`, Tier::nvme from `nvme`, which may be null
  /// where there is none; they must outlive this.
  explicit JobMemory(const std::vector<const program::Program*>& programs,
                     memory::Arena::Guards guards = memory::Arena::Guards::off,
                     memory::Provider& device = memory::host_memory(),
                     memory::Provider& host = memory::host_memory(), memory::NvmeMemory* nvme = nullptr);

  /// Where tensors of this tier are.
  memory::Provider& provider(program::Tier tier = program::Tier::device) const {
    return *providers_[static_cast<std::size_t>(tier)];
  }
  /// Null where no tensor is there.
  memory::NvmeMemory* nvme() const { return nvme_; }

  /// First byte of a tensor or view of a program given to the constructor.
  std::byte* address(const program::Program& program, program::TensorId tensor) const;

  template <class T>
  T* data(const program::Program& program, program::TensorId tensor) const {
    return reinterpret_cast<T*>(address(program, tensor));
  }

  /// As often on every rank: also for regions that this rank has nothing in.
  void each_region(program::Tier tier, const std::function<void(void* data, std::int64_t bytes)>& f) const;
  /// Zeros in all that no Program keeps, so that two runs from one state find the same bytes everywhere. No
  /// work is under way.
  void clear_transient() const;
  std::int64_t persistent_bytes(program::Tier tier) const { return bytes_of(region(tier).persistent); }
  std::int64_t transient_bytes(program::Tier tier) const { return bytes_of(region(tier).transient); }
  /// Without NVMe, as the next.
  std::int64_t total_bytes() const;
  /// Of these, what is held in memory: pages that were touched, where it comes by pages.
  std::int64_t resident_bytes() const;
  /// Throws Error when a guarded edge of a region was overwritten.
  void check_guards() const;

 private:
  struct Region {
    std::unique_ptr<memory::Arena> persistent;
    std::unique_ptr<memory::Arena> transient;
  };
  const Region& region(program::Tier tier) const { return regions_[static_cast<std::size_t>(tier)]; }
  static std::int64_t bytes_of(const std::unique_ptr<memory::Arena>& arena) {
    return arena ? arena->bytes() : 0;
  }

  memory::NvmeMemory* nvme_;
  memory::Provider* providers_[program::tier_count];
  Region regions_[program::tier_count];
};

}  // namespace ztrain::engine
