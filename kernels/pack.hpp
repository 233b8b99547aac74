#pragma once
// A few elements in the registers of one thread of a GPU.

#include <algorithm>
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
      const auto* const parts = reinterpret_cast<const Part*>(from);
#pragma unroll
      for (std::size_t i = 0; i < parts_; ++i) put(i, parts[i]);
    } else {
#pragma unroll
      for (std::int64_t i = 0; i < size; ++i) at[i] = i < n ? from[i] : T{};
    }
  }

  ZTRAIN_FUNCTION void store(T* to, std::int64_t n) const {
    if (n == size && fits(to)) {
      auto* const parts = reinterpret_cast<Part*>(to);
#pragma unroll
      for (std::size_t i = 0; i < parts_; ++i) parts[i] = get(i);
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

  /// What one access moves: one integer, since the compiler does not always join the members of a structure.
  __extension__ using Wide = unsigned __int128;
  using Part =
      std::conditional_t<access_ == 16, Wide, std::conditional_t<access_ == 8, std::uint64_t, std::uint32_t>>;

  ZTRAIN_FUNCTION static bool fits(const T* address) {
    return reinterpret_cast<std::uintptr_t>(address) % access_ == 0;
  }
  ZTRAIN_FUNCTION void put(std::size_t i, Part part) {
    std::memcpy(at + i * (access_ / sizeof(T)), &part, access_);
  }
  ZTRAIN_FUNCTION Part get(std::size_t i) const {
    Part part;
    std::memcpy(&part, at + i * (access_ / sizeof(T)), access_);
    return part;
  }
};

}  // namespace ztrain::kernels
