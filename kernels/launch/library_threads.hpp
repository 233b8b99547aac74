#pragma once
// Threads that libraries of kernels start by themselves.

namespace ztrain::kernels {

/// Ranks, not threads, fill the cores: a library that starts one thread per core in every rank only
/// oversubscribes. On GPUs there are none.
void use_one_library_thread();

}  // namespace ztrain::kernels
