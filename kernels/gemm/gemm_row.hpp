#pragma once
// The product of one row, y = x W^T, as every layer has it that runs on one token: bound by the bytes of W,
// which are read once, as they lie.

#include <memory>

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels {

/// Whether make_gemm_row has a kernel for a completed shape: m = 1, B transposed, C overwritten, and both
/// types fp32, bf16, fp16 or fp64, the same ones.
bool is_row_product(const GemmShape& shape, DType in, DType out);

/// Sums in fp32 (fp64 for fp64), on CPUs in an order that depends on k alone. On GPUs it is make_gemm's.
/// Throws Error for other shapes and types.
std::unique_ptr<Gemm> make_gemm_row(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
