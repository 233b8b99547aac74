#pragma once
// Checked calls of the CUDA runtime.

namespace ztrain::runtime {

/// Throws Error naming the call ("cudaStreamCreate") and CUDA's text unless code, a cudaError_t, is
/// cudaSuccess. Takes the error from the runtime, so that the next call does not report it again.
void check_cuda(int code, const char* call);

}  // namespace ztrain::runtime
