#pragma once
// A few elements in the registers of one thread of a GPU.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/function.hpp"

namespace ztrain::kernels {

/// Elements that a GPU thread takes of arrays of types T that are walked together: 16 bytes of the widest.
/// The accesses of a warp then lie side by side, without gaps; those of a narrower type are of 8 or 4 bytes.
template <class... T>
inline constexpr std::int64_t pack_of = 16 / static_cast<std::int64_t>(std::max({sizeof(T)...}));

/// `size` elements of T in registers.
template <class T, std::int64_t size>
class Pack {
 public:
  /// n <= size elements at `from`; zeros after them.
  ZTRAIN_FUNCTION void load(const T* from, std::int64_t n) {
    if (n == size && fits(from)) {
      const auto* const parts = reinterpret_cast<const Words*>(from);
#pragma unroll
      for (std::size_t i = 0; i < parts_; ++i) {
        const Words words = parts[i];
        std::memcpy(at + i * per_part_, &words, access_);
      }
    } else {
#pragma unroll
      for (std::int64_t i = 0; i < size; ++i) at[i] = i < n ? from[i] : T{};
    }
  }

  ZTRAIN_FUNCTION void store(T* to, std::int64_t n) const {
    if (n == size && fits(to)) {
      auto* const parts = reinterpret_cast<Whole*>(to);
#pragma unroll
      for (std::size_t i = 0; i < parts_; ++i) parts[i].value = joined(i);
    } else {
#pragma unroll
      for (std::int64_t i = 0; i < size; ++i)
        if (i < n) to[i] = at[i];
    }
  }

  T at[size];

 private:
  static constexpr std::size_t bytes_ = size * sizeof(T), access_ = bytes_ < 16 ? bytes_ : 16;
  static constexpr std::size_t parts_ = bytes_ / access_;
  static_assert(parts_ * access_ == bytes_);

  // What one access moves: nvcc keeps a load of words and a store of one integer whole, but not always a load
  // of one integer or a store of words. What was stored as one may be loaded as the other.
  struct [[gnu::may_alias]] alignas(access_) Words {
    std::uint32_t word[access_ / 4];
  };
  __extension__ using Wide = unsigned __int128;
  using Integer =
      std::conditional_t<access_ == 16, Wide, std::conditional_t<access_ == 8, std::uint64_t, std::uint32_t>>;
  using Bits =
      std::conditional_t<sizeof(T) == 8, std::uint64_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                            std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
  struct [[gnu::may_alias]] Whole {
    Integer value;
  };
  static constexpr std::size_t per_part_ = access_ / sizeof(T);

  ZTRAIN_FUNCTION static bool fits(const T* address) {
    return reinterpret_cast<std::uintptr_t>(address) % access_ == 0;
  }
  ZTRAIN_FUNCTION Integer joined(std::size_t i) const {
    Integer all = 0;
#pragma unroll
    for (std::size_t j = 0; j < per_part_; ++j)
      all |= static_cast<Integer>(std::bit_cast<Bits>(at[i * per_part_ + j])) << (j * 8 * sizeof(T));
    return all;
  }
};

}  // namespace ztrain::kernels
