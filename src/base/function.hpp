#pragma once
// Arithmetic that both the host and a device compiler take.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ZTRAIN_FUNCTION __host__ __device__ inline
#else
/// Put before a function whose body is plain arithmetic and that kernels call.
#define ZTRAIN_FUNCTION inline
#endif
