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

struct GeluTanh {
  template <class A>
  static KOKKOS_INLINE_FUNCTION A value(A x) {
    return x / 2 * (1 + fast_tanh(inner(x)));
  }
  template <class A>
  static KOKKOS_INLINE_FUNCTION ValueAndSlope<A> both(A x) {
    const A t = fast_tanh(inner(x)), inner_slope = root<A> * (1 + 3 * cubic<A> * x * x);
    // Far out 1 - t^2 is exactly 0, which times an infinite slope would be no number.
    const A bend = (1 - t) * (1 + t), middle = bend > 0 ? bend * inner_slope * x / 2 : A(0);
    return {x / 2 * (1 + t), (1 + t) / 2 + middle};
  }

 private:
  template <class A>
  static constexpr A root = A(0.7978845608028654);  // sqrt(2 / pi)
  template <class A>
  static constexpr A cubic = A(0.044715);
  template <class A>
  static KOKKOS_INLINE_FUNCTION A inner(A x) {
    return root<A> * (x + cubic<A> * x * x * x);
  }
};

/// Calls run<Function>() for the struct of this kind.
template <class Run>
void with_function(ActivationKind kind, const Run& run) {
  switch (kind) {
    case ActivationKind::silu:
      return run.template operator()<Silu>();
    case ActivationKind::gelu_tanh:
      return run.template operator()<GeluTanh>();
  }
}

}  // namespace ztrain::kernels
