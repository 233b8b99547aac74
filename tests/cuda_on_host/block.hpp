#pragma once
// Kernels on the host. A block is a thread of the host, and its threads are contexts (ucontext) of it: one
// runs until it waits at a barrier or a shuffle, or ends, then another goes on. So 1,024 of them cost little,
// and what happens is the same on every run. Blocks run one after the other; shared memory is thread_local to
// them, and holds what the block before left there, at first zeros.
//
// Built with ThreadSanitizer, each context is a thread to it, which nothing orders but barriers: a shuffle
// does not, nor does the end of a block before the beginning of the next. Each block has a new thread of the
// host there, and so shared memory of its own.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace cuda_on_host {

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

/// The threads of a block that the kernel's __launch_bounds__ allows; 0: it has none.
unsigned launch_bound(const void* kernel);

/// Runs `kernel` in every thread of the grid. Refuses what no GPU takes, more threads than `bound` among it;
/// a kernel without a bound, of which the compiler need not have left registers for the launch; and the null
/// stream, which queues do not wait for. Throws std::logic_error where threads wait for others that have
/// ended or wait elsewhere. Kernels throw nothing.
cudaError_t run(const cudaLaunchConfig_t& config, unsigned bound, const std::function<void()>& kernel);

/// Of a running kernel: waits for all threads of the block.
void sync_block();

using Word = std::uint64_t;
/// This thread's number in its warp.
int lane();
/// Of a running kernel: waits for the lanes of `mask`, which all call this with the same one; `value` of the
/// lane `from`.
Word exchange(unsigned mask, Word value, int from);

}  // namespace cuda_on_host
