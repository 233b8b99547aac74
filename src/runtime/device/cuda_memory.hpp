#pragma once
// Memory of the current CUDA device, and pinned memory of the host.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "memory/huge_buffer.hpp"
#include "memory/provider.hpp"

namespace ztrain::runtime {

/// Who gives memory of the device, and takes it back.
struct CudaSource {
  /// Null: there is not that much. Throws Error for what else is wrong.
  void* (*take)(std::size_t bytes);
  void (*give_back)(void* taken) noexcept;
};
/// CUDA's own.
extern const CudaSource cuda_source;

class CudaMemory final : public memory::Provider {
 public:
  /// gpu: its name, for messages.
  explicit CudaMemory(std::string gpu, CudaSource source = cuda_source)
      : gpu_(std::move(gpu)), source_(source) {}
  std::byte* allocate(const std::string& name, std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) noexcept override;
  bool host_accessible() const override { return false; }
  void fill(void* data, int value, std::int64_t bytes) override;
  void write(void* data, const void* host, std::int64_t bytes) override;
  void read(void* host, const void* data, std::int64_t bytes) const override;
  /// Of the GPU: other processes' use counts.
  memory::MachineMemory limits() const override;

 private:
  std::string gpu_;
  CudaSource source_;
  std::map<std::byte*, void*> allocations_;  ///< what the source gave, by what was made of it
};

/// Kernels reach it too, by the same addresses. Large regions are huge pages of the GPU's NUMA node, which
/// many threads take and CUDA then registers. CUDA's own allocation clears memory in one thread, which is
/// slow.
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
