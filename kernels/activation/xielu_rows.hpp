#pragma once
// The loops of xIELU (xielu.hpp): blocks of a row for CPUs, and rows that threads of a GPU share. Included by
// kernel sources only.

#include "kernels/activation/functions.hpp"
#include "kernels/activation/xielu.hpp"
#include "kernels/launch/pack.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {

/// exp(x), and what it is above its tangent at 0: exp(x) - 1 - x.
template <class A>
struct ExpAndRest {
  A exp, rest;
};

/// x <= 0.
KOKKOS_INLINE_FUNCTION ExpAndRest<double> exp_and_rest(double x) {
  const double less_one = std::expm1(x);
  return {less_one + 1, less_one - x};
}
/// Near 0 the rest is a series, since the difference loses all digits there.
KOKKOS_INLINE_FUNCTION ExpAndRest<float> exp_and_rest(float x) {
  float p = 1.0f / 362880;
  p = p * x + 1.0f / 40320;
  p = p * x + 1.0f / 5040;
  p = p * x + 1.0f / 720;
  p = p * x + 1.0f / 120;
  p = p * x + 1.0f / 24;
  p = p * x + 1.0f / 6;
  p = p * x + 0.5f;
  const float e = fast_exp(x);
  return {e, x > -0.75f ? p * x * x : e - 1 - x};
}

/// log(1 + exp(x)).
template <class A>
KOKKOS_INLINE_FUNCTION A softplus(A x) {
  return x > 40 ? x : std::log1p(std::exp(x));
}
/// The slope of softplus.
KOKKOS_INLINE_FUNCTION double softplus_slope(double x) {
  return 1 / (1 + std::exp(-x));
}

/// xIELU of one element, with the constants as the formula has them.
template <class A>
struct XieluFunction {
  A alpha_p, alpha_n, beta, eps;

  template <class T>
  static KOKKOS_INLINE_FUNCTION XieluFunction of(const XieluConstants<T>& c) {
    const A beta = static_cast<A>(c.beta);
    return {softplus<A>(load(*c.p)), beta + softplus<A>(load(*c.n)), beta, static_cast<A>(c.eps)};
  }
  /// Returns the factor of alpha_n for x <= 0, and its slope.
  KOKKOS_INLINE_FUNCTION ValueAndSlope<A> below(A x) const {
    const A m = x > eps ? eps : x;  // keeps NaN
    const ExpAndRest<A> at = exp_and_rest(m);
    return {at.rest + (m - x), (x > eps ? A(0) : at.exp) - 1};
  }
  KOKKOS_INLINE_FUNCTION A value(A x) const {
    return (x > 0 ? alpha_p * x * x : alpha_n * below(x).value) + beta * x;
  }
  /// Adds gradient times the factors of alpha_p and alpha_n to p and n, and returns gradient times the slope.
  KOKKOS_INLINE_FUNCTION A slope(A x, A gradient, A& p, A& n) const {
    const ValueAndSlope<A> b = below(x);
    p += x > 0 ? gradient * x * x : A(0);
    n += x > 0 ? A(0) : gradient * b.value;
    return gradient * ((x > 0 ? 2 * alpha_p * x : alpha_n * b.slope) + beta);
  }
};

template <class T>
KOKKOS_INLINE_FUNCTION void xielu_values(const T* __restrict x, T* __restrict y, std::int64_t n,
                                         const XieluFunction<acc_t<T>>& f) {
  if constexpr (widens<T>) {
    float wide[quantum], result[quantum];
    for (std::int64_t begin = 0; begin < n; begin += quantum) {
      const std::int64_t some = n - begin < quantum ? n - begin : quantum;
      widen(x + begin, wide, some);
      xielu_values<float>(wide, result, some, f);
      narrow(result, y + begin, some);
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f.value(load(x[i])));
  }
}

/// Sums of dy times what alpha_p and alpha_n are multiplied by, in lanes: the loops vectorise and give the
/// same bits for any vector width.
template <class A>
struct AlphaSums {
  A p[wide_group] = {}, n[wide_group] = {};
};

/// Computes at most a wide_group of elements, whose sums go to as many lanes.
template <class A>
void xielu_group(const A* x, const A* dy, A* dx, std::int64_t n, const XieluFunction<A>& f,
                 AlphaSums<A>& sums) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) dx[i] = f.slope(x[i], dy[i], sums.p[i], sums.n[i]);
}

/// Computes at most a quantum of elements. dx may be x or dy: each element is read before it is written.
template <class T>
void xielu_slopes(const T* x, const T* dy, T* dx, std::int64_t n, const XieluFunction<acc_t<T>>& f,
                  AlphaSums<acc_t<T>>& sums) {
  if constexpr (widens<T>) {
    float wide[quantum], gradient[quantum];
    widen(x, wide, n);
    widen(dy, gradient, n);
    xielu_slopes<float>(wide, gradient, wide, n, f, sums);
    narrow(wide, dx, n);
  } else {
    for_groups(n, [&](std::int64_t begin, auto count) {
      xielu_group<T>(x + begin, dy + begin, dx + begin, count, f, sums);
    });
  }
}

/// A row's gradients, by one thread of a CPU in blocks of a quantum, or by a team of a GPU in packs.
template <class T>
struct XieluRow {
  XieluConstants<T> constants;
  const T *x, *dy;
  T* dx;
  std::int64_t width;
  double* sums;  ///< [rows, 2]

  void operator()(std::int64_t row) const {
    const auto f = XieluFunction<acc_t<T>>::of(constants);
    double p = 0, n = 0;
    for (std::int64_t begin = 0; begin < width; begin += quantum) {
      const std::int64_t at = row * width + begin;
      AlphaSums<acc_t<T>> part;
      xielu_slopes<T>(x + at, dy + at, dx + at, width - begin < quantum ? width - begin : quantum, f, part);
      for (int u = 0; u < wide_group; ++u) p += part.p[u], n += part.n[u];
    }
    sums[2 * row] = p;
    sums[2 * row + 1] = n;
  }

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    constexpr std::int64_t size = pack_of<T>;
    const auto f = XieluFunction<acc_t<T>>::of(constants);
    double p = 0, n = 0;
    for (std::int64_t begin = threads.rank() * size; begin < width; begin += threads.size() * size) {
      const std::int64_t at = row * width + begin, left = width - begin, count = left < size ? left : size;
      Pack<T, size> a, b;
      a.load(x + at, count);
      b.load(dy + at, count);
      acc_t<T> above = 0, below = 0;
#pragma unroll
      for (std::int64_t i = 0; i < size; ++i)
        a.at[i] = static_cast<T>(f.slope(load(a.at[i]), load(b.at[i]), above, below));
      a.store(dx + at, count);
      p += above;
      n += below;
    }
    p = threads.sum(p);
    n = threads.sum(n);
    if (threads.rank() > 0) return;
    sums[2 * row] = p;
    sums[2 * row + 1] = n;
  }
};

/// Adds the rows' sums, in order on a CPU and by the threads of one team on a GPU.
template <class T, class G>
struct XieluAlphas {
  XieluConstants<T> constants;
  const double* sums;
  std::int64_t rows;
  bool accumulate;
  G *dp, *dn;

  KOKKOS_INLINE_FUNCTION void write(double p, double n) const {
    p *= softplus_slope(load(*constants.p));
    n *= softplus_slope(load(*constants.n));
    *dp = static_cast<G>(static_cast<acc_t<G>>((accumulate ? static_cast<double>(load(*dp)) : 0) + p));
    *dn = static_cast<G>(static_cast<acc_t<G>>((accumulate ? static_cast<double>(load(*dn)) : 0) + n));
  }
  void operator()(std::int64_t) const {
    double p = 0, n = 0;
    for (std::int64_t row = 0; row < rows; ++row) p += sums[2 * row], n += sums[2 * row + 1];
    write(p, n);
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    double p = 0, n = 0;
    for (std::int64_t row = threads.rank(); row < rows; row += threads.size())
      p += sums[2 * row], n += sums[2 * row + 1];
    p = threads.sum(p);
    n = threads.sum(n);
    if (threads.rank() == 0) write(p, n);
  }
};

}  // namespace ztrain::kernels
