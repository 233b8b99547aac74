#pragma once
// In the place of the toolkit's header of this name: the language of kernels, for a C++ compiler.

#include <cuda_runtime_api.h>

#include <cstring>
#include <tuple>
#include <type_traits>

#include "tests/cuda_on_host/block.hpp"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
/// So many no-ops before the kernel's code, where launch_bound counts them.
#define __launch_bounds__(threads) \
  __attribute__((patchable_function_entry(sizeof(char[threads]), sizeof(char[threads]))))
/// A block has a thread of the host to itself.
#define __shared__ static thread_local

using cuda_on_host::blockDim;
using cuda_on_host::blockIdx;
using cuda_on_host::gridDim;
using cuda_on_host::threadIdx;

/// All arguments of one type: nvcc knows more, and is stricter where types differ.
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline void __syncthreads() {
  cuda_on_host::sync_block();
}

/// The value of the thread `by` lanes before this one in its warp; the own one where there is none.
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(cuda_on_host::Word));
  cuda_on_host::Word word{};
  std::memcpy(&word, &value, sizeof(T));
  const int lane = cuda_on_host::lane(), from = lane - static_cast<int>(by);
  word = cuda_on_host::exchange(mask, word, from < 0 ? lane : from);
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

/// Parameters are converted once, and each thread has its own copies.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const std::tuple<Parameters...> parameters(std::forward<Arguments>(arguments)...);
  return cuda_on_host::run(*config, cuda_on_host::launch_bound(reinterpret_cast<const void*>(kernel)),
                           [&] { std::apply(kernel, parameters); });
}
