// The work of builds for GPUs; their sums are kernels (rank_sum.cu).
#include "runtime/comm/rank_sum.hpp"

#include <cuda_runtime_api.h>

#include "runtime/device/cuda_check.hpp"

namespace ztrain::runtime {

// Devices of a CUDA build that are not GPUs have null streams, and memory that kernels cannot reach.

StreamWork copy_work(void* to, const void* from, std::int64_t bytes) {
  return [=, host = host_copy_work(to, from, bytes)](void* stream) {
    if (stream == nullptr) return host(stream);
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                               static_cast<cudaStream_t>(stream)),
               "cudaMemcpyAsync");
  };
}

}  // namespace ztrain::runtime
