#pragma once
// Product of fp16 matrices for a library without one: panels are widened to fp32, multiplied there, and the
// sums over all of k rounded once.

#include "kernels/gemm.hpp"

namespace ztrain::kernels {

/// As make_gemm, for A and B in fp16 and C in fp16 or fp32; `shape` has its strides (complete()).
std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType out);

}  // namespace ztrain::kernels
