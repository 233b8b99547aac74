#include "kernels/elementwise/arithmetic.hpp"

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// c may be a or b: each element is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION void add_block(const T* a, const T* b, T* c, std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float left[wide_group], right[wide_group];
      widen(a + begin, left, count);
      widen(b + begin, right, count);
      add_block<float>(left, right, left, count);
      narrow(left, c + begin, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) c[i] = static_cast<T>(load(a[i]) + load(b[i]));
}

/// y may be x: each element is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION void scale_block(const T* x, acc_t<T> factor, T* y, std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(x + begin, values, count);
      scale_block<float>(values, factor, values, count);
      narrow(values, y + begin, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(factor * load(x[i]));
}

}  // namespace

template <class T>
void add(Exec& exec, Vector<const T> a, Vector<const T> b, Vector<T> c) {
  REQUIRE(a.count == b.count && a.count == c.count, "add: a has {} elements, b {} and c {}", a.count, b.count,
          c.count);
  for_pieces<pack_of<T>>(
      exec, c.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { add_block<T>(p.in(a.data), p.in(b.data), p.out(c.data), p.n()); });
}

template <class T>
void scale(Exec& exec, Vector<const T> x, double factor, Vector<T> y) {
  REQUIRE(x.count == y.count, "scale: x has {} elements and y {}", x.count, y.count);
  const auto by = static_cast<acc_t<T>>(factor);
  for_pieces<pack_of<T>>(
      exec, y.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { scale_block<T>(p.in(x.data), by, p.out(y.data), p.n()); });
}

ZTRAIN_INSTANCES(add)
ZTRAIN_INSTANCES(scale)

}  // namespace ztrain::kernels
