#pragma once
// Launches of kernels written in CUDA. A function of the runtime in the place of <<< >>>, so that any C++
// compiler reads such a source: tests/cuda_on_host runs them without a GPU.

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/device/cuda_check.hpp"

namespace ztrain::runtime {

/// kernel(arguments...) by `blocks` blocks of `threads` threads on a cudaStream_t, after what was given to
/// it. what: the kernel as a message names it. Throws Error if it cannot start; less than 2^31 blocks.
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
