#include "runtime/device/cuda_check.hpp"

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace ztrain::runtime {
namespace {

/// Returns what a user can do about the error, to follow the message.
const char* advice(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalInstruction:
    case cudaErrorAssert:
      return "; a kernel that ran earlier failed: with CUDA_LAUNCH_BLOCKING=1 in the environment the message "
             "names the op";
    case cudaErrorNoKernelImageForDevice:
      return "; this build is for another generation of GPUs: set CMAKE_CUDA_ARCHITECTURES, and build Kokkos "
             "for the same";
    default:
      return "";
  }
}

}  // namespace

void check_cuda(int code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  const auto error = static_cast<cudaError_t>(code);
  fail("CUDA: {} failed: {} ({}){}", call, cudaGetErrorString(error), cudaGetErrorName(error), advice(error));
}

}  // namespace ztrain::runtime
