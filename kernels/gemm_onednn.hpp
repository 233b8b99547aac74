#pragma once
// oneDNN's matrix products.

#include <memory>

#include "kernels/gemm.hpp"

namespace ztrain::kernels {

/// Whether the processor multiplies bf16 (AVX512-BF16 or AMX), and ONEDNN_MAX_CPU_ISA lets the library use
/// it.
bool onednn_has_bf16();

/// Likewise AMX.
bool onednn_has_amx();

/// As make_gemm, for fp32, bf16 and bf16 -> fp32; `shape` has its strides (complete()). Null where the
/// library has nothing for the shape but its plain loop, or nothing whose scratchpad fits the reservation.
std::unique_ptr<Gemm> make_gemm_onednn(const GemmShape& shape, DType in, DType out);

}  // namespace ztrain::kernels
