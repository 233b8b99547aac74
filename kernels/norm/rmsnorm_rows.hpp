#pragma once
// rmsnorm by the one thread of a CPU. Included by rmsnorm_reduce.cpp alone, whose sums may be reordered.

#include <cmath>
#include <cstdint>

#include "kernels/launch/wide.hpp"
#include "kernels/norm/rmsnorm_threads.hpp"

namespace ztrain::kernels {

// A row is one call of these functions. They are not inlined: where sums may be reordered, two
// inlined copies may order them differently, and the fused forward would then differ from the plain one in
// the last bit.

template <class T>
[[gnu::noinline]] acc_t<T> row_rstd(const T* __restrict x, std::int64_t d, acc_t<T> eps) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(x[i]) * load(x[i]);
  return acc_t<T>(1) / std::sqrt(sum / static_cast<acc_t<T>>(d) + eps);
}

template <class T>
[[gnu::noinline]] void scale_row(const T* __restrict x, const T* __restrict weight, acc_t<T> rstd,
                                 T* __restrict y, std::int64_t d) {
  for (std::int64_t i = 0; i < d; ++i) y[i] = static_cast<T>(load(x[i]) * rstd * load(weight[i]));
}

/// r may be a or b: each element is read before it is written, so the loop carries no dependence, which the
/// pragma tells the compiler.
template <class T>
KOKKOS_INLINE_FUNCTION void sum_row(const T* a, const T* b, T* r, std::int64_t d) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) r[i] = static_cast<T>(load(a[i]) + load(b[i]));
}

/// sum of dy * weight * x, the projection of the gradient on the row.
template <class T>
[[gnu::noinline]] acc_t<T> row_projection(const T* __restrict x, const T* __restrict weight,
                                          const T* __restrict dy, std::int64_t d) {
  acc_t<T> sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += load(dy[i]) * load(weight[i]) * load(x[i]);
  return sum;
}

/// dx may be dy or addend, as above; partial never overlaps the others.
template <bool with_addend, class T>
KOKKOS_INLINE_FUNCTION void backward_row(const T* __restrict x, const T* __restrict weight, const T* dy,
                                         const T* addend, acc_t<T> rstd, acc_t<T> projection, T* dx,
                                         acc_t<T>* __restrict partial, std::int64_t d) {
  const acc_t<T> along = projection * rstd * rstd * rstd / static_cast<acc_t<T>>(d);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < d; ++i) {
    const acc_t<T> gradient = load(dy[i]);
    const acc_t<T> value = load(x[i]);
    acc_t<T> result = gradient * load(weight[i]) * rstd - value * along;
    if constexpr (with_addend) result += load(addend[i]);
    partial[i] += gradient * value * rstd;
    dx[i] = static_cast<T>(result);
  }
}

/// Rows of 16-bit floats up to this width are widened; their weight once for a block of rows.
inline constexpr std::int64_t most_wide = 4096;

/// A block of rows of the forward.
template <bool with_addend, class T>
struct ForwardRows {
  using A = acc_t<T>;
  NormArrays<T> a;

  void operator()(std::int64_t begin, std::int64_t count) const {
    if constexpr (widens<T>)
      if (a.d <= most_wide) return wide(begin, count);
    for (std::int64_t row = begin; row < begin + count; ++row) {
      const std::int64_t at = row * a.d;
      if constexpr (with_addend) sum_row<T>(a.x + at, a.addend + at, a.sum + at, a.d);
      const T* const x = (with_addend ? a.sum : a.x) + at;
      a.rstd[row] = row_rstd<T>(x, a.d, a.eps);
      scale_row<T>(x, a.weight, a.rstd[row], a.y + at, a.d);
    }
  }

  void wide(std::int64_t begin, std::int64_t count) const {
    if (a.d <= 0) return;  // else a compiler may think that x is read before it is written
    A weight[most_wide], x[most_wide], other[most_wide];
    widen(a.weight, weight, a.d);
    for (std::int64_t row = begin; row < begin + count; ++row) {
      const std::int64_t at = row * a.d;
      widen(a.x + at, x, a.d);
      if constexpr (with_addend) {
        widen(a.addend + at, other, a.d);
        sum_row<A>(x, other, x, a.d);
        narrow(x, a.sum + at, a.d);
        widen(a.sum + at, x, a.d);
      }
      a.rstd[row] = row_rstd<A>(x, a.d, a.eps);
      scale_row<A>(x, weight, a.rstd[row], other, a.d);
      narrow(other, a.y + at, a.d);
    }
  }
};

/// A block of rows of the backward.
template <bool with_addend, class T>
struct BackwardBlock {
  using A = acc_t<T>;
  NormGradientArrays<T> a;
  std::int64_t height;
  A* partials;

  void operator()(std::int64_t block) const {
    A* const partial = partials + block * a.d;
    for (std::int64_t i = 0; i < a.d; ++i) partial[i] = 0;
    const std::int64_t begin = block * height;
    const std::int64_t end = begin + height < a.rows ? begin + height : a.rows;
    if constexpr (widens<T>)
      if (a.d <= most_wide) return wide(begin, end, partial);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.d;
      const A projection = row_projection<T>(a.x + at, a.weight, a.dy + at, a.d);
      backward_row<with_addend, T>(a.x + at, a.weight, a.dy + at, a.addend + (with_addend ? at : 0),
                                   a.rstd[row], projection, a.dx + at, partial, a.d);
    }
  }

  void wide(std::int64_t begin, std::int64_t end, A* partial) const {
    A weight[most_wide], x[most_wide], dy[most_wide], addend[most_wide];
    widen(a.weight, weight, a.d);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.d;
      widen(a.x + at, x, a.d);
      widen(a.dy + at, dy, a.d);
      if constexpr (with_addend) widen(a.addend + at, addend, a.d);
      const A projection = row_projection<A>(x, weight, dy, a.d);
      backward_row<with_addend, A>(x, weight, dy, addend, a.rstd[row], projection, dy, partial, a.d);
      narrow(dy, a.dx + at, a.d);
    }
  }
};

}  // namespace ztrain::kernels
