#pragma once
// Arithmetic that host and device compilers compile.

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ZTRAIN_FUNCTION __host__ __device__ inline
#else
/// Marks a function whose body is plain arithmetic and that kernels call.
#define ZTRAIN_FUNCTION inline
#endif
