#pragma once
// The functions of activations and their slopes. A new one is a struct here and a row of with_function.
// Included by kernel sources only.

#include "kernels/activation/activation.hpp"
#include "kernels/launch/fast_exp.hpp"
#include "kernels/launch/rows.hpp"

namespace ztrain::kernels {

/// A function's value and its derivative at one place.
template <class A>
struct ValueAndSlope {
  A value, slope;
};

struct Silu {
  template <class A>
  static KOKKOS_INLINE_FUNCTION A sigmoid(A x) {
    return A(1) / (A(1) + fast_exp(-x));
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION A value(A x) {
    return x * sigmoid(x);
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION ValueAndSlope<A> both(A x) {
    const A s = sigmoid(x), silu = x * s;
    return {silu, s + silu * (1 - s)};
  }
};

/// x sigmoid(2z), which is x / 2 (1 + tanh(z)) without its cancellation where z < 0.
struct GeluTanh {
  template <class A>
  static KOKKOS_INLINE_FUNCTION A value(A x) {
    return x / (1 + decay(x, square(x)));
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION ValueAndSlope<A> both(A x) {
    const A x2 = square(x), e = decay(x, x2), s = 1 / (1 + e), gelu = x * s;
    // 1 - s loses digits where s is almost 1, but e may be infinite.
    const A rest = e < A(1e30) ? e * s : A(1);
    return {gelu, s + gelu * rest * twice_root<A> * (1 + 3 * cubic<A> * x2)};
  }

 private:
  template <class A>
  static constexpr A twice_root = A(1.5957691216057308);  // 2 sqrt(2 / pi)
  template <class A>
  static constexpr A cubic = A(0.044715);
  /// Returns x^2, at most 20^2 so that nothing overflows. For |x| > 20 the sigmoid is 0 or 1 even in fp64.
  template <class A>
  static KOKKOS_INLINE_FUNCTION A square(A x) {
    return x * x < 400 ? x * x : A(400);
  }
  /// Returns exp(-2z). x2 is square(x).
  template <class A>
  static KOKKOS_INLINE_FUNCTION A decay(A x, A x2) {
    return fast_exp(-twice_root<A> * x * (1 + cubic<A> * x2));
  }
};

/// The gate of gpt-oss: m sigmoid(1.702 m) with m = min(x, 7). The other factor is up, limited to +-7,
/// plus 1.
struct ClampedSilu {
  template <class A>
  static KOKKOS_INLINE_FUNCTION A value(A x) {
    const A m = x > limit<A> ? limit<A> : x;  // keeps NaN
    return m / (A(1) + fast_exp(-gain<A> * m));
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION ValueAndSlope<A> both(A x) {
    const A m = x > limit<A> ? limit<A> : x, s = A(1) / (A(1) + fast_exp(-gain<A> * m)), y = m * s;
    return {y, x > limit<A> ? A(0) : s + gain<A> * y * (1 - s)};
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION ValueAndSlope<A> up(A x) {
    const A low = x < -limit<A> ? -limit<A> : x, m = low > limit<A> ? limit<A> : low;
    return {m + 1, m == x ? A(1) : A(0)};
  }

 private:
  template <class A>
  static constexpr A limit = A(7);
  template <class A>
  static constexpr A gain = A(1.702);
};

/// Returns the factor that `up` is of a gated activation, and its slope: itself, if the function does not say
/// another.
template <class F, class A>
KOKKOS_INLINE_FUNCTION ValueAndSlope<A> factor_of_up(A up) {
  if constexpr (requires { F::up(up); })
    return F::up(up);
  else
    return {up, A(1)};
}

/// Calls run<Function>() for the struct of this kind.
template <class Run>
void with_function(ActivationKind kind, const Run& run) {
  switch (kind) {
    case ActivationKind::silu:
      return run.template operator()<Silu>();
    case ActivationKind::gelu_tanh:
      return run.template operator()<GeluTanh>();
    case ActivationKind::clamped_silu:
      return run.template operator()<ClampedSilu>();
  }
}

}  // namespace ztrain::kernels
