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

/// By AMX's tiles, from panels that it lays out in the workspace and on the stack: bf16, bf16 -> fp32, and
/// fp32 as six products of the three bf16 whose sum each number is, with errors like those of fp32's own
/// products. Null where the processor, the operating system or this build has no tiles, for other types, and
/// for m or k below 32. An element's bits depend on k alone. Numbers below 2^-126 count as zero, of fp32 ones
/// below 2^-103 the last bits, and so do products of parts that small.
std::unique_ptr<Gemm> make_gemm_tiles(const GemmShape& shape, DType in, DType out);

/// For a processor without instructions for 16-bit products: panels of A and B, both bf16 or fp16, are
/// widened to fp32, multiplied there, and the sums over all of k rounded once to C, of the same type or fp32.
std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
