#pragma once
// Elements as the inner loops of kernels see them. On a CPU a piece of an array is its memory. On a GPU it is
// a pack in the registers of one thread, which is read and written by accesses of 16 bytes where its address
// allows it, so that one function over (pointers, n) serves both at memory speed. Included by kernel sources
// only.

#include <cstdint>
#include <cstring>

#include "base/error.hpp"
#include "kernels/launch/pack.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// A pack that a function reads, writes, or both: a pointer to the function, loaded before its call and
/// stored after it.
template <class T, std::int64_t size>
class PackIn {
 public:
  KOKKOS_INLINE_FUNCTION PackIn(const T* from, std::int64_t n) { pack_.load(from, n); }
  KOKKOS_INLINE_FUNCTION operator const T*() const { return pack_.at; }

 private:
  Pack<T, size> pack_;
};

template <class T, std::int64_t size>
class PackOut {
 public:
  KOKKOS_INLINE_FUNCTION PackOut(T* to, std::int64_t n, bool read) : to_(to), n_(n) {
    if (read) pack_.load(to, n);
  }
  PackOut(const PackOut&) = delete;
  PackOut& operator=(const PackOut&) = delete;
  KOKKOS_INLINE_FUNCTION ~PackOut() { pack_.store(to_, n_); }
  KOKKOS_INLINE_FUNCTION operator T*() { return pack_.at; }

 private:
  T* to_;
  std::int64_t n_;
  Pack<T, size> pack_;
};

/// Elements [begin, begin + length) of arrays that are walked together; on a GPU at most `size` of them. The
/// results of in, out and both are pointers to a function of n() elements. They live until the end of the
/// statement that calls it, so an output may be an input: all is read before anything is written.
template <std::int64_t size>
struct Piece {
  std::int64_t begin = 0, length = 0;

  /// How many elements to compute: on a GPU always `size`, those beyond the piece for nothing, so that loops
  /// unroll and arrays become registers.
  KOKKOS_INLINE_FUNCTION std::int64_t n() const {
    if constexpr (on_gpu)
      return size;
    else
      return length;
  }

  template <class T>
  KOKKOS_INLINE_FUNCTION auto in(const T* data) const {
    if constexpr (on_gpu)
      return PackIn<T, size>(data + begin, length);
    else
      return data + begin;
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION auto out(T* data) const {
    if constexpr (on_gpu)
      return PackOut<T, size>(data + begin, length, false);
    else
      return data + begin;
  }
  /// to = from; the arrays do not overlap.
  template <class T>
  KOKKOS_INLINE_FUNCTION void copy(const T* from, T* to) const {
    if constexpr (on_gpu) {
      Pack<T, size> values;
      values.load(from + begin, length);
      values.store(to + begin, length);
    } else {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(length) * sizeof(T));
    }
  }
  /// Sets all bits: NaN in every float type.
  template <class T>
  KOKKOS_INLINE_FUNCTION void fill_nan(T* to) const {
    auto&& target = out(to);
    std::memset(static_cast<T*>(target), 0xFF, static_cast<std::size_t>(n()) * sizeof(T));
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION void fill_zero(T* to) const {
    auto&& target = out(to);
    std::memset(static_cast<T*>(target), 0, static_cast<std::size_t>(n()) * sizeof(T));
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION auto both(T* data) const {
    if constexpr (on_gpu)
      return PackOut<T, size>(data + begin, length, true);
    else
      return data + begin;
  }
};
template <class... T>
using PieceOf = Piece<pack_of<T...>>;

/// A row cut into packs by its lanes.
using RowPiece = Piece<pack>;

/// A pack of [0, count) by a thread of a GPU.
template <std::int64_t size, class Functor>
struct PackFunctor {
  Functor functor;
  std::int64_t count;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const std::int64_t begin = index * size, left = count - begin;
    functor(Piece<size>{begin, left < size ? left : size});
  }
};

/// A quantum by the one thread of a CPU.
template <std::int64_t size, class Functor>
struct QuantumFunctor {
  Functor functor;
  void operator()(std::int64_t begin, std::int64_t length) const { functor(Piece<size>{begin, length}); }
};

/// functor(Piece<size>) for pieces that together are [0, count): quanta on a CPU, packs on a GPU.
template <std::int64_t size, class Functor>
void for_pieces(Exec& exec, std::int64_t count, const Functor& functor) {
  static_assert(carried<PackFunctor<size, Functor>>, "capture less: see largest_functor");
  if constexpr (on_gpu)
    for_rows(exec, ceil_div(count, size), PackFunctor<size, Functor>{functor, count});
  else
    for_blocks(exec, count, QuantumFunctor<size, Functor>{functor});
}

/// A pack of a row by a thread of a GPU. Numbers of packs have 32 bits, whose division is cheap.
template <std::int64_t size, class Functor>
struct RowPackFunctor {
  Functor functor;
  std::int64_t cols;
  std::uint32_t per_row;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const auto i = static_cast<std::uint32_t>(index);
    const std::int64_t begin = i % per_row * size, left = cols - begin;
    functor(static_cast<std::int64_t>(i / per_row), Piece<size>{begin, left < size ? left : size});
  }
};

/// A quantum of a row by the one thread of a CPU. The length of a full one is a constant to the compiler.
template <std::int64_t size, class Functor>
struct RowQuantumFunctor {
  Functor functor;
  std::int64_t cols, per_row;
  void operator()(std::int64_t index) const {
    const std::int64_t row = index / per_row, begin = index % per_row * quantum;
    if (begin + quantum <= cols)
      functor(row, Piece<size>{begin, quantum});
    else
      functor(row, Piece<size>{begin, cols - begin});
  }
};

/// functor(row, Piece<size>) for pieces of each row of [rows, cols].
template <std::int64_t size, class Functor>
void for_row_pieces(Exec& exec, std::int64_t rows, std::int64_t cols, const Functor& functor) {
  static_assert(carried<RowPackFunctor<size, Functor>>, "capture less: see largest_functor");
  const std::int64_t per_row = ceil_div(cols, on_gpu ? size : quantum), pieces = rows * per_row;
  if constexpr (on_gpu) {
    REQUIRE(pieces <= std::int64_t{1} << 32, "a matrix of {} x {} elements is too large for this kernel",
            rows, cols);
    for_rows(exec, pieces, RowPackFunctor<size, Functor>{functor, cols, static_cast<std::uint32_t>(per_row)});
  } else {
    for_rows(exec, pieces, RowQuantumFunctor<size, Functor>{functor, cols, per_row});
  }
}

}  // namespace ztrain::kernels
