#pragma once
// The ways of forming products between which make_gemm chooses. Shapes have their strides (complete()), but
// where zero ones are filled in.

#include <memory>

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels {

/// Whether make_gemm_row has a kernel for a shape: m = 1, B transposed, C overwritten, and both types fp32,
/// bf16, fp16 or fp64, the same ones.
bool is_row_product(const GemmShape& shape, DType in, DType out);

/// The product of one row, y = x W^T, as every layer has it that runs on one token: bound by the bytes of W,
/// which are read once, as they lie. Sums in fp32 (fp64 for fp64), on CPUs in an order that depends on k
/// alone; on GPUs it is make_gemm's. Fills in zero strides. Throws Error for other shapes and types.
std::unique_ptr<Gemm> make_gemm_row(const GemmShape& shape, DType in, DType out);

/// oneDNN's, for fp32, bf16 and bf16 -> fp32. Null where the library has nothing for the shape but its plain
/// loop, or nothing whose scratchpad fits the reservation.
std::unique_ptr<Gemm> make_gemm_onednn(const GemmShape& shape, DType in, DType out);

/// For a processor without instructions for 16-bit products: panels of A and B, both bf16 or fp16, are
/// widened to fp32, multiplied there, and the sums over all of k rounded once to C, of the same type or fp32.
std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
