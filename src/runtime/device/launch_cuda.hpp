#pragma once
// Launches kernels written in CUDA. A runtime function stands for <<< >>>, so that any C++ compiler reads
// such a source: tests/cuda_on_host runs them without a GPU.

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/device/cuda_check.hpp"

namespace ztrain::runtime {

/// Launches kernel(arguments...) with `blocks` blocks, fewer than 2^31, of `threads` threads on a
/// cudaStream_t. `what` names the kernel in messages. Throws Error if it cannot start.
template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), std::int64_t blocks, int threads, void* stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace ztrain::runtime
