#pragma once
// Products of 16-bit matrices for a processor without instructions for them: panels are widened to fp32,
// multiplied there, and the sums over all of k rounded once.

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels {

/// As make_gemm, for A and B in `in`, bf16 or fp16, and C in the same or in fp32; `shape` has its strides
/// (complete()).
std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
