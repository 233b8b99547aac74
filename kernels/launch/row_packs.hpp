#pragma once
// What a GPU thread loads and stores at once: `pack` elements in accesses of 16 bytes where the address
// allows them. Included by kernel sources only.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// Consecutive elements in registers.
template <class T>
struct RowPack {
  T at[pack];
};

/// The 16 bytes of one access.
struct alignas(16) PackWords {
  std::uint32_t at[4];
};

/// Whether packs that begin on multiples of a pack from here lie on such addresses.
KOKKOS_INLINE_FUNCTION bool on_words(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(PackWords) == 0;
}

/// Returns `address`, which is a multiple of 16 bytes. Builds with sanitizers trap if it is not: x86 forgives
/// such an access, a GPU does not.
template <class Byte>
KOKKOS_INLINE_FUNCTION Byte* on_word(Byte* address) {
#ifdef ZTRAIN_SANITIZE
  if (!on_words(address)) __builtin_trap();
#endif
  return static_cast<Byte*>(__builtin_assume_aligned(address, sizeof(PackWords)));
}

template <class T>
inline constexpr int pack_accesses = static_cast<int>(sizeof(RowPack<T>) / sizeof(PackWords));

template <class T>
struct PackOfWords {
  PackWords at[pack_accesses<T>];
};

/// The pack at `from`. whole: all of it is there, on a multiple of 16 bytes. Otherwise the first n elements
/// are, and the others are zero.
template <bool whole, class T>
KOKKOS_INLINE_FUNCTION RowPack<T> load_pack(const T* from, [[maybe_unused]] std::int64_t n) {
  if constexpr (whole) {
    PackOfWords<T> words;
    const auto* bytes = reinterpret_cast<const char*>(from);
    for (int w = 0; w < pack_accesses<T>; ++w)
      std::memcpy(&words.at[w], on_word(bytes + w * sizeof(PackWords)), sizeof(PackWords));
    return std::bit_cast<RowPack<T>>(words);
  } else {
    RowPack<T> result;
    for (int i = 0; i < pack; ++i) result.at[i] = i < n ? from[i] : T(0);
    return result;
  }
}

/// The reverse: where not whole, the first n elements are written.
template <bool whole, class T>
KOKKOS_INLINE_FUNCTION void store_pack(const RowPack<T>& values, T* to, [[maybe_unused]] std::int64_t n) {
  if constexpr (whole) {
    const auto words = std::bit_cast<PackOfWords<T>>(values);
    auto* bytes = reinterpret_cast<char*>(to);
    for (int w = 0; w < pack_accesses<T>; ++w)
      std::memcpy(on_word(bytes + w * sizeof(PackWords)), &words.at[w], sizeof(PackWords));
  } else {
    for (int i = 0; i < pack; ++i)
      if (i < n) to[i] = values.at[i];
  }
}

/// f(integral_constant) for 0 .. n - 1: a loop that is unrolled for certain, so that arrays indexed by it
/// stay in registers.
template <int n, class F>
KOKKOS_INLINE_FUNCTION void unrolled(const F& f) {
  [&]<int... k>(std::integer_sequence<int, k...>) {
    (f(std::integral_constant<int, k>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

}  // namespace ztrain::kernels
