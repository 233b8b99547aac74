#include "kernels/elementwise/arithmetic.hpp"

#include "base/error.hpp"
#include "kernels/launch/fast_exp.hpp"
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

/// y = f(x), computed in acc_t<T>. y may be x: each element is read before it is written.
template <class T, class F>
KOKKOS_INLINE_FUNCTION void map_block(const T* x, const F& f, T* y, std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(x + begin, values, count);
      map_block<float>(values, f, values, count);
      narrow(values, y + begin, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(load(x[i])));
}

template <class A>
struct Multiply {
  A factor;
  KOKKOS_INLINE_FUNCTION A operator()(A x) const { return factor * x; }
};
template <class A>
struct Cap {
  A cap;
  KOKKOS_INLINE_FUNCTION A operator()(A x) const { return softly_capped(x, cap); }
};

template <class T, class F>
void map(Exec& exec, const char* what, Vector<const T> x, const F& f, Vector<T> y) {
  REQUIRE(x.count == y.count, "{}: x has {} elements and y {}", what, x.count, y.count);
  for_pieces<pack_of<T>>(
      exec, y.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { map_block<T>(p.in(x.data), f, p.out(y.data), p.n()); });
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
  map<T>(exec, "scale", x, Multiply<acc_t<T>>{static_cast<acc_t<T>>(factor)}, y);
}

template <class T>
void soft_cap(Exec& exec, Vector<const T> x, double cap, Vector<T> y) {
  map<T>(exec, "soft cap", x, Cap<acc_t<T>>{static_cast<acc_t<T>>(cap)}, y);
}

ZTRAIN_INSTANCES(add)
ZTRAIN_INSTANCES(scale)
ZTRAIN_INSTANCES(soft_cap)

namespace {

template <class A, class B>
KOKKOS_INLINE_FUNCTION void cast_block(const A* __restrict src, B* __restrict dst, std::int64_t n) {
  if constexpr (widens<B> && std::is_same_v<A, float>) {
    narrow(src, dst, n);
  } else if constexpr (widens<A> && std::is_same_v<B, float>) {
    widen(src, dst, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) dst[i] = static_cast<B>(load(src[i]));
  }
}

}  // namespace

template <class A, class B>
void cast(Exec& exec, Vector<const A> src, Vector<B> dst) {
  REQUIRE(src.count == dst.count, "cast: the source has {} elements, the destination {}", src.count,
          dst.count);
  for_pieces<pack_of<A, B>>(
      exec, dst.count,
      KOKKOS_LAMBDA(const PieceOf<A, B> p) { cast_block<A, B>(p.in(src.data), p.out(dst.data), p.n()); });
}

#define ZTRAIN_CAST(from, to) ZTRAIN_INSTANCE(cast, from, to)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, float)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, bf16)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, f16)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, double)

}  // namespace ztrain::kernels
