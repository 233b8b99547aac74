#pragma once
// oneDNN's matrix products.

#include <memory>

#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels {

/// As make_gemm, for fp32, bf16 and bf16 -> fp32; `shape` has its strides (complete()). Null where the
/// library has nothing for the shape but its plain loop, or nothing whose scratchpad fits the reservation.
std::unique_ptr<Gemm> make_gemm_onednn(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
