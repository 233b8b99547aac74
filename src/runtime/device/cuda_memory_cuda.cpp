#include <cuda_runtime_api.h>

#include <cstring>

#include "base/error.hpp"
#include "base/text.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/cuda_memory.hpp"

namespace ztrain::runtime {
namespace {

constexpr std::uintptr_t alignment = 4096;
constexpr std::int64_t large_pinned = 32 * memory::huge_page;

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

std::string text(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// Waits because fills, and copies from pageable memory, may return before the device is through with them,
/// and the device's queues do not wait for them.
void wait_for_device() {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// Returns an attribute of the current device, or -1 if the driver does not know it.
int attribute(cudaDeviceAttr wanted) {
  int gpu = 0, value = -1;
  if (cudaGetDevice(&gpu) == cudaSuccess && cudaDeviceGetAttribute(&value, wanted, gpu) == cudaSuccess)
    return value;
  cudaGetLastError();
  return -1;
}

void* take(std::size_t bytes) {
  void* given = nullptr;
  const cudaError_t code = cudaMalloc(&given, bytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(code, "cudaMalloc");
  return given;
}

void give_back(void* taken) noexcept {
  cudaFree(taken);  // a device that failed has said so before
}

}  // namespace

const CudaSource cuda_source{take, give_back};

std::byte* CudaMemory::allocate(const std::string& name, std::int64_t bytes) {
  // If the source aligns less than is promised here, there is room to move up.
  void* const given = source_.take(size(bytes) + alignment);
  if (given == nullptr) {
    const memory::MachineMemory gpu = limits();
    fail("out of GPU memory: the {} needs {}, and {} has {} free of {}", name, text(bytes), gpu_,
         text(gpu.available), text(gpu.total));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(given);
  auto* const data = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
  allocations_[data] = given;
  fill(data, 0, bytes);
  return data;
}

void CudaMemory::release(std::byte* data, std::int64_t) noexcept {
  const auto found = allocations_.find(data);
  if (found == allocations_.end()) return;
  source_.give_back(found->second);
  allocations_.erase(found);
}

void CudaMemory::fill(void* data, int value, std::int64_t bytes) {
  check_cuda(cudaMemset(data, value, size(bytes)), "cudaMemset");
  wait_for_device();
}

void CudaMemory::write(void* data, const void* host, std::int64_t bytes) {
  check_cuda(cudaMemcpy(data, host, size(bytes), cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  wait_for_device();
}

void CudaMemory::read(void* host, const void* data, std::int64_t bytes) const {
  check_cuda(cudaMemcpy(host, data, size(bytes), cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
}

memory::MachineMemory CudaMemory::limits() const {
  std::size_t available = 0, total = 0;
  check_cuda(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(available)};
}

std::byte* PinnedMemory::allocate(const std::string& name, std::int64_t bytes) {
  if (bytes >= large_pinned && attribute(cudaDevAttrCanUseHostPointerForRegisteredMem) == 1)
    if (std::byte* const pages = register_pages(bytes)) return pages;
  void* given = nullptr;
  const cudaError_t code = cudaMallocHost(&given, size(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const memory::MachineMemory machine = limits();
    fail(
        "out of pinned host memory: the {} needs {}, the machine has {} available of {}; a limit on locked "
        "memory (ulimit -l) counts too",
        name, text(bytes), text(machine.available), text(machine.total));
  }
  check_cuda(code, "cudaMallocHost");
  std::memset(given, 0, size(bytes));
  return static_cast<std::byte*>(given);
}

/// Returns null if CUDA or the system refuses. The caller then uses CUDA's own allocation.
std::byte* PinnedMemory::register_pages(std::int64_t bytes) {
  // The kernel kills a process that touches more memory than there is.
  if (const memory::MachineMemory machine = limits(); machine.total > 0 && bytes > machine.available)
    return nullptr;
  auto pages = std::make_unique<memory::HugeBuffer>(bytes);
  if (pages->data() == nullptr) return nullptr;
  pages->prefer_node(attribute(cudaDevAttrHostNumaId));
  pages->touch(progress_);
  if (cudaHostRegister(pages->data(), size(pages->bytes()), cudaHostRegisterDefault) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  std::byte* const data = pages->data();
  registered_[data] = std::move(pages);
  return data;
}

void PinnedMemory::release(std::byte* data, std::int64_t) noexcept {
  const auto found = registered_.find(data);
  if (found == registered_.end()) {
    cudaFreeHost(data);
    return;
  }
  cudaHostUnregister(data);
  registered_.erase(found);
}

}  // namespace ztrain::runtime
