#pragma once
// Allocates memory of the current CUDA device, and pinned memory of the host.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "memory/huge_buffer.hpp"
#include "memory/provider.hpp"

namespace ztrain::runtime {

/// Functions that give memory of the device and take it back.
struct CudaSource {
  /// Returns null if there is not that much. Throws Error for anything else.
  void* (*take)(std::size_t bytes);
  void (*give_back)(void* taken) noexcept;
};
/// CUDA's own allocation.
extern const CudaSource cuda_source;

class CudaMemory final : public memory::Provider {
 public:
  /// gpu is its name, for messages.
  explicit CudaMemory(std::string gpu, CudaSource source = cuda_source)
      : gpu_(std::move(gpu)), source_(source) {}
  std::byte* allocate(const std::string& name, std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) noexcept override;
  bool host_accessible() const override { return false; }
  void fill(void* data, int value, std::int64_t bytes) override;
  void write(void* data, const void* host, std::int64_t bytes) override;
  void read(void* host, const void* data, std::int64_t bytes) const override;
  /// Returns the limits of the GPU; other processes' use counts.
  memory::MachineMemory limits() const override;

 private:
  std::string gpu_;
  CudaSource source_;
  std::map<std::byte*, void*> allocations_;  ///< pointers that the source gave, by the aligned ones
};

/// Pinned host memory, which kernels reach by the same addresses. Large regions are huge pages of the GPU's
/// NUMA node, which many threads touch and CUDA then registers: CUDA's own allocation clears memory in one
/// thread, which is slow. Offload always uses pinned memory: a copy of pageable memory goes through the
/// driver's buffer, blocks the issuing thread, cannot be in a CUDA graph and overlaps with nothing.
class PinnedMemory final : public memory::Provider {
 public:
  std::byte* allocate(const std::string& name, std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) noexcept override;
  void report_progress_to(memory::AllocationProgress progress) override { progress_ = std::move(progress); }

 private:
  std::byte* register_pages(std::int64_t bytes);

  memory::AllocationProgress progress_;
  std::map<std::byte*, std::unique_ptr<memory::HugeBuffer>> registered_;
};

}  // namespace ztrain::runtime
