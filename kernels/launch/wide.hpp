#pragma once
// 16-bit floats as fp32 on a CPU: a block of a row is widened into an array on the stack, where loops over
// fp32 vectorise best, and the results are narrowed. Included by kernel sources only.

#include <cstdint>

#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
#include <immintrin.h>
#endif

#include "base/dtype.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// Whether a kernel's loops over T are to be done in fp32 this way.
template <class T>
inline constexpr bool widens = !on_gpu && sizeof(T) == 2;

template <class T>
inline void widen(const T* __restrict from, acc_t<T>* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<acc_t<T>>(from[i]);
}

/// Rounds to nearest even, as T does.
template <class T>
inline void narrow(const acc_t<T>* __restrict from, T* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
/// The processor's own rounding, which differs in denormal numbers alone: it makes them zero. They are rare.
template <>
inline void narrow<bf16>(const float* __restrict from, bf16* __restrict to, std::int64_t n) {
  constexpr int width = 16, denormal = 0x20;
  const std::int64_t whole = n / width * width;
  for (std::int64_t i = 0; i < whole; i += width) {
    const __m512 x = _mm512_loadu_ps(from + i);
    if (_mm512_fpclass_ps_mask(x, denormal) == 0) [[likely]] {
      const __m256bh rounded = _mm512_cvtneps_pbh(x);
      __builtin_memcpy(to + i, &rounded, sizeof(rounded));
    } else {
      for (int j = 0; j < width; ++j) to[i + j] = bf16(from[i + j]);
    }
  }
  for (std::int64_t i = whole; i < n; ++i) to[i] = bf16(from[i]);
}
#endif

}  // namespace ztrain::kernels
