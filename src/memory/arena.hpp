#pragma once
// One region of host memory in which a plan has placed tensors at fixed offsets.

#include <cstddef>
#include <cstdint>
#include <string>

namespace ztrain::memory {

/// Owns `bytes` bytes, all zero at first, aligned to 4096 (2 MiB for large regions). Only pages that are
/// touched take memory.
class Arena {
 public:
  enum class Guards { off, on };

  /// name ("transient") is for messages. With guards, a zone before and one behind the region are filled with
  /// a pattern. Throws Error when the machine does not have that much memory available, with both figures.
  Arena(std::string name, std::int64_t bytes, Guards guards = Guards::off);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  const std::string& name() const { return name_; }
  std::int64_t bytes() const { return bytes_; }
  /// Bytes of its pages that are in memory now; 0 where the operating system does not tell.
  std::int64_t resident_bytes() const;
  /// Never allocates or checks: offsets come from a verified plan.
  std::byte* at(std::int64_t offset) const { return base_ + offset; }

  /// Fills a range with 0xFF: NaN in every float type, -1 in the integers. Throws Error if it leaves the
  /// region.
  void poison(std::int64_t offset, std::int64_t bytes);

  /// Throws Error naming the first byte outside the region that was overwritten. Without guards it does
  /// nothing.
  void check_guards() const;

 private:
  std::string name_;
  std::int64_t bytes_ = 0;
  std::int64_t guard_ = 0;  ///< bytes of each guard zone
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace ztrain::memory
