#pragma once
// Four codes at once on a CPU. Included by kernel sources only; for_cuda/fp8_convert.hpp has the same for
// GPUs, and the build chooses the folder.

#include <cstdint>

namespace ztrain::kernels {

/// Codes of a, b, c and d, from the lowest byte up. Code is f8e4m3 or f8e5m2.
template <class Code>
inline std::uint32_t four_codes(float a, float b, float c, float d) {
  const auto low = static_cast<std::uint32_t>(Code(a).bits | Code(b).bits << 8);
  return low | static_cast<std::uint32_t>(Code(c).bits | Code(d).bits << 8) << 16;
}

}  // namespace ztrain::kernels
