#pragma once
// Four codes at once on a GPU, by its own conversions: one instruction for two from compute capability 8.9
// on, where the same in integer arithmetic would take longer than the memory. Bits as of base/dtype.hpp, but
// that a NaN has no sign. Included by kernel sources only; for_cpu/fp8_convert.hpp has the same for CPUs.

#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"

namespace ztrain::kernels {

/// Codes of a, b, c and d, from the lowest byte up. Code is f8e4m3 or f8e5m2.
template <class Code>
__host__ __device__ inline std::uint32_t four_codes(float a, float b, float c, float d) {
  constexpr auto format = std::is_same_v<Code, f8e4m3> ? __NV_E4M3 : __NV_E5M2;
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, format);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, format);
  return low | high << 16;
}

}  // namespace ztrain::kernels
