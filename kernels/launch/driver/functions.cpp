// The functions of the CUDA driver that Kokkos calls, looked up when they are called. Linked in the usual way
// they would make the driver's library a condition for starting at all, and ztrain could not say that there
// is none, nor plan, check and export on a login node.

#include <cuda_runtime_api.h>

namespace {

/// CUDA_ERROR_NOT_FOUND of the driver's interface.
constexpr int not_found = 500;

/// `version`: of the driver's interface that first had the function with this signature, as 1000 * major + 10
/// * minor.
template <class... Arguments>
int call(const char* name, unsigned version, Arguments... arguments) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return not_found;
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}

}  // namespace

// As cuda.h declares them, with its handles (pointers) and its CUresult and CUdevice (ints).
extern "C" {
int cuCtxGetDevice(int* device) {
  return call("cuCtxGetDevice", 2000, device);
}
int cuCtxPushCurrent_v2(void* context) {
  return call("cuCtxPushCurrent", 4000, context);
}
int cuStreamGetCtx(void* stream, void** context) {
  return call("cuStreamGetCtx", 9020, stream, context);
}
}
