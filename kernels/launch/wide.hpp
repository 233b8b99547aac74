#pragma once
// 16-bit floats as fp32 on a CPU: elements are widened into an array on the stack, where loops over fp32
// vectorise best, and the results are narrowed. An array of wide_group elements becomes registers. Included
// by kernel sources only.

#include <cstdint>
#include <type_traits>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

#include "base/dtype.hpp"

namespace ztrain::kernels {

/// Elements that are converted at once.
inline constexpr std::int64_t wide_group = 32;

/// loop(begin, n) for groups, whose n the compiler knows, and for what is left behind them.
template <class Loop>
inline void for_groups(std::int64_t count, const Loop& loop) {
  const std::int64_t whole = count / wide_group * wide_group;
  for (std::int64_t begin = 0; begin < whole; begin += wide_group)
    loop(begin, std::integral_constant<std::int64_t, wide_group>{});
  if (whole < count) loop(whole, count - whole);
}

template <class T>
[[gnu::noinline]] void widen_each(const T* __restrict from, float* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

template <class T>
[[gnu::noinline]] void narrow_each(const float* __restrict from, T* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

#if defined(__AVX2__) && defined(__F16C__)

/// A group in registers. Compilers find neither the processor's own conversions in a loop nor a short form of
/// others, since they choose between a NaN's bits and a number's for each element. Here a group that has what
/// the instructions would convert otherwise than T does is left to the loop.
class WideGroup {
 public:
  explicit WideGroup(const float* from) {
    for (int i = 0; i < registers; ++i) at_[i] = _mm256_loadu_ps(from + i * width);
  }
  explicit WideGroup(const bf16* from) {
    for (int i = 0; i < registers; ++i)
      at_[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight(from, i)), 16));
  }
  explicit WideGroup(const f16* from) {
    for (int i = 0; i < registers; ++i) at_[i] = _mm256_cvtph_ps(eight(from, i));
  }

  bool any_nan() const {
    const __m256 nan = _mm256_cmp_ps(at_[0], at_[1], _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(nan, _mm256_cmp_ps(at_[2], at_[3], _CMP_UNORD_Q))) != 0;
  }

  void store(float* to) const {
    for (int i = 0; i < registers; ++i) _mm256_storeu_ps(to + i * width, at_[i]);
  }
  /// False, and nothing is written, where an element needs the loop.
  bool store(f16* to) const {
    if (any_nan()) return false;
    for (int i = 0; i < registers; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * width),
                       _mm256_cvtps_ph(at_[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return true;
  }
#if defined(__AVX512BF16__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
  /// The instruction keeps NaN, and makes denormal numbers zero.
  bool store(bf16* to) const {
    constexpr int denormal = 0x20;
    unsigned found = 0;
    for (int i = 0; i < registers; ++i) found |= _mm256_fpclass_ps_mask(at_[i], denormal);
    if (found != 0) return false;
    for (int i = 0; i < registers; ++i) {
      const __m128bh rounded = _mm256_cvtneps_pbh(at_[i]);
      __builtin_memcpy(to + i * width, &rounded, sizeof(rounded));
    }
    return true;
  }
#else
  bool store(bf16* to) const {
    if (any_nan()) return false;
    for (int i = 0; i < registers; i += 2) {
      const __m256i both = _mm256_packus_epi32(rounded(at_[i]), rounded(at_[i + 1]));  // of each half in turn
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * width),
                          _mm256_permute4x64_epi64(both, 0b11'01'10'00));
    }
    return true;
  }
#endif

 private:
  static constexpr int width = 8, registers = wide_group / width;

  template <class T>
  static __m128i eight(const T* from, int i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * width));
  }
  /// bf16's bits of numbers.
  [[maybe_unused]] static __m256i rounded(__m256 x) {
    const __m256i u = _mm256_castps_si256(x), even = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), even);
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), odd), 16);
  }

  __m256 at_[registers];
};

template <class T>
inline void widen_group(const T* __restrict from, float* __restrict to) {
  const WideGroup group(from);
  if (std::is_same_v<T, f16> && group.any_nan()) [[unlikely]]
    widen_each(from, to, wide_group);
  else
    group.store(to);
}

template <class T>
inline void narrow_group(const float* __restrict from, T* __restrict to) {
  const WideGroup group(from);
  if (group.store(to)) [[likely]]
    return;
  float each[wide_group];  // a copy, so that `from` can be registers
  group.store(each);
  narrow_each(each, to, wide_group);
}

#else

template <class T>
inline void widen_group(const T* __restrict from, float* __restrict to) {
  for (std::int64_t i = 0; i < wide_group; ++i) to[i] = static_cast<float>(from[i]);
}

template <class T>
inline void narrow_group(const float* __restrict from, T* __restrict to) {
  for (std::int64_t i = 0; i < wide_group; ++i) to[i] = static_cast<T>(from[i]);
}

#endif

template <class T>
inline void widen(const T* __restrict from, float* __restrict to, std::int64_t n) {
  for_groups(n, [&](std::int64_t begin, auto count) {
    if constexpr (std::is_integral_v<decltype(count)>)
      widen_each(from + begin, to + begin, count);
    else
      widen_group(from + begin, to + begin);
  });
}

/// Rounds to nearest even, as T does.
template <class T>
inline void narrow(const float* __restrict from, T* __restrict to, std::int64_t n) {
  for_groups(n, [&](std::int64_t begin, auto count) {
    if constexpr (std::is_integral_v<decltype(count)>)
      narrow_each(from + begin, to + begin, count);
    else
      narrow_group(from + begin, to + begin);
  });
}

}  // namespace ztrain::kernels
