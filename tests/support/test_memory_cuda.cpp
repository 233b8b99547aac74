#include <cuda_runtime_api.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "tests/support/test_memory.hpp"

namespace ztrain::test {
namespace {

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

}  // namespace

/// The driver reads it when it is initialised.
void make_launches_wait() {
  if (std::getenv("ZTRAIN_TEST_LATE_LAUNCHES") == nullptr) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
}

/// Lives as long as the process.
void* test_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return stream;
}

void wait_for_launches() {
  check(cudaDeviceSynchronize(), "a kernel failed");
}

int test_gpu() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

std::string lack_of_fp8(bool rowwise) {
  const int gpu = test_gpu();
  const std::string has = "; this GPU has " + std::to_string(gpu / 10) + "." + std::to_string(gpu % 10);
  if (gpu < 89) return "products of 8-bit floats need compute capability 8.9" + has;
  if (rowwise && gpu != 90) return "cuBLASLt takes scales of rows on compute capability 9.0 alone" + has;
  return "";
}

/// Managed memory: its pages follow whoever touches them.
void* allocate_test_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, bytes > 0 ? bytes : 1) != cudaSuccess) throw std::bad_alloc();
  return memory;
}

/// An error here is one of an earlier kernel, which its own launch reports, or the next wait.
void free_test_memory(void* memory) noexcept {
  if (launches_pending()) static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaFree(memory));
}

}  // namespace ztrain::test
