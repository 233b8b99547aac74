#pragma once
// One region of memory in which a plan has placed tensors at fixed offsets.

#include <cstddef>
#include <cstdint>
#include <string>

#include "memory/provider.hpp"

namespace ztrain::memory {

/// Owns `bytes` bytes, all zero at first, aligned to 4096.
class Arena {
 public:
  enum class Guards { off, on };

  /// name ("transient") is for messages. With guards, a zone before and one after the region are filled with
  /// a pattern. Throws what the provider throws if there is not that much memory. The provider must outlive
  /// the arena.
  Arena(std::string name, std::int64_t bytes, Guards guards = Guards::off,
        Provider& provider = host_memory());
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  const std::string& name() const { return name_; }
  std::int64_t bytes() const { return bytes_; }
  /// Returns the bytes that are in memory now (Provider::resident_bytes).
  std::int64_t resident_bytes() const;
  const Provider& provider() const { return *provider_; }
  /// Never allocates or checks: offsets come from a verified plan.
  std::byte* at(std::int64_t offset) const { return base_ + offset; }

  // These run between work, as the provider's own calls do.
  /// Fills a range with 0xFF: NaN in every float type, -1 in the integers. Throws Error if it leaves the
  /// region.
  void poison(std::int64_t offset, std::int64_t bytes);

  /// Throws Error naming the first byte outside the region that was overwritten. Does nothing without guards.
  void check_guards() const;

 private:
  std::string name_;
  Provider* provider_;
  std::int64_t bytes_ = 0;
  std::int64_t guard_ = 0;           ///< bytes of each guard zone
  std::byte* allocation_ = nullptr;  ///< guard, region, guard
  std::byte* base_ = nullptr;
};

}  // namespace ztrain::memory
