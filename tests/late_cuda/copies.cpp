// Memory, fills and copies.
#include <cstring>
#include <vector>

#include "tests/late_cuda/memory.hpp"
#include "tests/late_cuda/runtime.hpp"

namespace late_cuda {
namespace {

/// Whether the addresses are of the kinds of memory that the call names.
bool fits(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device || from_device) && is_device_memory(to, bytes) == to_device &&
         is_device_memory(from, bytes) == from_device;
}

std::function<bool()> copy_of(void* to, const void* from, std::size_t bytes) {
  return [=] {
    const Open open;
    std::memcpy(to, from, bytes);
    return true;
  };
}

/// From a copy of what the host has there now.
std::function<bool()> copy_of_now(void* to, const void* from, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  return [to, now = std::vector<std::byte>(begin, begin + bytes)] {
    const Open open;
    std::memcpy(to, now.data(), now.size());
    return true;
  };
}

/// Pageable memory goes through a buffer: what is read of it is read before the call returns, and what is
/// written to it is there on return. Pinned memory is read and written when the copy runs.
cudaError_t copy(Runtime& runtime, Lock& lock, void* to, const void* from, std::size_t bytes,
                 cudaMemcpyKind kind, CUstream_st& stream) {
  if (bytes == 0) return cudaSuccess;
  if (!fits(to, from, bytes, kind)) return cudaErrorInvalidValue;
  const bool eager = !stream.capture;
  const bool pageable_source =
      kind == cudaMemcpyHostToDevice && !pinned_memory().contains(from, bytes) && eager;
  const bool pageable_target =
      kind == cudaMemcpyDeviceToHost && !pinned_memory().contains(to, bytes) && eager;
  const cudaError_t code = runtime.append(
      stream, pageable_source ? copy_of_now(to, from, bytes) : copy_of(to, from, bytes), "a copy");
  if (code == cudaSuccess && pageable_target) runtime.work().run_until(Places(stream.last), lock);
  return code;
}

cudaError_t allocate(void** data, std::size_t bytes, Memory& memory) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    *data = memory.allocate(bytes);
    return *data ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

/// Waits for all that may use it.
cudaError_t release(void* data, Memory& memory) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    if (data == nullptr) return cudaSuccess;
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    runtime.work().run_all(lock);
    return memory.release(data) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // namespace
}  // namespace late_cuda

using late_cuda::Lock;
using late_cuda::Runtime;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return late_cuda::allocate(data, bytes, late_cuda::device_memory());
}

cudaError_t cudaFree(void* data) {
  return late_cuda::release(data, late_cuda::device_memory());
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return late_cuda::allocate(data, bytes, late_cuda::pinned_memory());
}

cudaError_t cudaFreeHost(void* data) {
  return late_cuda::release(data, late_cuda::pinned_memory());
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  return Runtime::get().call([&](Lock&) {
    if (const cudaError_t code = Runtime::get().allowed_while_capturing(); code != cudaSuccess) return code;
    if (flags != cudaHostRegisterDefault) return cudaErrorInvalidValue;
    return late_cuda::pinned_memory().adopt(data, bytes) ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

/// Waits for all that may use it.
cudaError_t cudaHostUnregister(void* data) {
  return Runtime::get().call([&](Lock& lock) {
    if (const cudaError_t code = Runtime::get().allowed_while_capturing(); code != cudaSuccess) return code;
    Runtime::get().work().run_all(lock);
    return late_cuda::pinned_memory().give_up(data) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = late_cuda::device_memory().available();
  *total = late_cuda::device_memory().total();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    CUstream_st* const found = runtime.stream(stream);
    return found ? late_cuda::copy(runtime, lock, to, from, bytes, kind, *found)
                 : cudaErrorInvalidResourceHandle;
  });
}

/// Of the legacy stream. From pageable memory the bytes may still be on their way on return.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock& lock) {
    if (const cudaError_t code = runtime.allowed_while_capturing(); code != cudaSuccess) return code;
    CUstream_st& legacy = *runtime.stream(nullptr);
    const cudaError_t code = late_cuda::copy(runtime, lock, to, from, bytes, kind, legacy);
    const bool pinned = kind == cudaMemcpyHostToDevice && late_cuda::pinned_memory().contains(from, bytes);
    if (code == cudaSuccess && (pinned || kind == cudaMemcpyDeviceToHost))
      runtime.work().run_until(late_cuda::Places(legacy.last), lock);
    return code;
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  return runtime.call([&](Lock&) {
    CUstream_st* const found = runtime.stream(stream);
    if (!found) return cudaErrorInvalidResourceHandle;
    if (!late_cuda::is_device_memory(data, bytes)) return cudaErrorInvalidValue;
    const auto fill = [=] {
      const late_cuda::Open open;
      std::memset(data, value, bytes);
      return true;
    };
    return runtime.append(*found, fill, "a fill");
  });
}

/// Of the legacy stream, and not done on return.
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  Runtime& runtime = Runtime::get();
  const cudaError_t code = runtime.call([&](Lock&) { return runtime.allowed_while_capturing(); });
  return code == cudaSuccess ? cudaMemsetAsync(data, value, bytes, nullptr) : code;
}
