// Devices and errors.
#include <cstring>

#include "tests/late_cuda/memory.hpp"
#include "tests/late_cuda/runtime.hpp"

namespace {

constexpr int devices = 8;

int& current_device() {
  thread_local int device = 0;
  return device;
}

}  // namespace

using late_cuda::Lock;
using late_cuda::Runtime;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return Runtime::get().call([&](Lock&) {
    if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Runtime::get().call([&](Lock&) {
    if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "late CUDA on host memory");
    properties->uuid.bytes[0] = static_cast<char>(device + 1);
    properties->totalGlobalMem = late_cuda::device_memory().total();
    properties->major = 9;
    properties->multiProcessorCount = 132;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Runtime::get().call([&](Lock&) {
    if (device < 0 || device >= devices) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *value = Runtime::get().registers() ? 1 : 0;
        return cudaSuccess;
      case cudaDevAttrHostNumaId:
        *value = 0;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Runtime::get().driver();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  cudaError_t& last = Runtime::last_error();
  const cudaError_t code = last;
  last = cudaSuccess;
  return code;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define LATE_CUDA_NAME(code) \
  case code:                 \
    return #code;
    LATE_CUDA_NAME(cudaSuccess)
    LATE_CUDA_NAME(cudaErrorInvalidValue)
    LATE_CUDA_NAME(cudaErrorMemoryAllocation)
    LATE_CUDA_NAME(cudaErrorInvalidDevice)
    LATE_CUDA_NAME(cudaErrorInvalidResourceHandle)
    LATE_CUDA_NAME(cudaErrorIllegalState)
    LATE_CUDA_NAME(cudaErrorNotReady)
    LATE_CUDA_NAME(cudaErrorLaunchFailure)
    LATE_CUDA_NAME(cudaErrorNotSupported)
    LATE_CUDA_NAME(cudaErrorStreamCaptureUnsupported)
    LATE_CUDA_NAME(cudaErrorStreamCaptureInvalidated)
    LATE_CUDA_NAME(cudaErrorStreamCaptureMerge)
    LATE_CUDA_NAME(cudaErrorStreamCaptureUnmatched)
    LATE_CUDA_NAME(cudaErrorStreamCaptureUnjoined)
    LATE_CUDA_NAME(cudaErrorStreamCaptureIsolation)
    LATE_CUDA_NAME(cudaErrorCapturedEvent)
    LATE_CUDA_NAME(cudaErrorStreamCaptureWrongThread)
#undef LATE_CUDA_NAME
    default:
      return "an error that this library does not know";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
