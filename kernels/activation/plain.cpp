// Activations without a gate.
#include "base/error.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/functions.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Computes at most a quantum of elements.
template <class F, class T>
KOKKOS_INLINE_FUNCTION void activate(const T* __restrict x, T* __restrict y, std::int64_t n) {
  if constexpr (widens<T>) {
    float wide[quantum], result[quantum];
    widen(x, wide, n);
    activate<F, float>(wide, result, n);
    narrow(result, y, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(F::value(load(x[i])));
  }
}

/// Computes at most a quantum of dx. dx may be an input: each element is read before it is written.
template <class F, class T>
KOKKOS_INLINE_FUNCTION void slope(const T* x, const T* dy, T* dx, std::int64_t n) {
  if constexpr (widens<T>) {
    float wide[quantum], gradient[quantum];
    widen(x, wide, n);
    widen(dy, gradient, n);
    slope<F, float>(wide, gradient, wide, n);
    narrow(wide, dx, n);
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> gradient = load(dy[i]);
    dx[i] = static_cast<T>(gradient * F::both(load(x[i])).slope);
  }
}

template <class F, class T>
void activate_all(Exec& exec, Vector<const T> x, Vector<T> y) {
  for_pieces<pack_of<T>>(
      exec, y.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { activate<F, T>(p.in(x.data), p.out(y.data), p.n()); });
}

template <class F, class T>
void activate_all_backward(Exec& exec, Vector<const T> x, Vector<const T> dy, Vector<T> dx) {
  for_pieces<pack_of<T>>(
      exec, dx.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { slope<F, T>(p.in(x.data), p.in(dy.data), p.out(dx.data), p.n()); });
}

}  // namespace

ActivationKind activation_kind(std::string_view name) {
  if (name == "silu") return ActivationKind::silu;
  if (name == "gelu_tanh") return ActivationKind::gelu_tanh;
  if (name == "clamped_silu") return ActivationKind::clamped_silu;
  fail("'{}' is no activation; known: silu, clamped_silu, gelu_tanh", name);
}

template <class T>
void activation_forward(Exec& exec, ActivationKind kind, Vector<const T> x, Vector<T> y) {
  REQUIRE(x.count == y.count, "activation: x has {} elements and y {}", x.count, y.count);
  with_function(kind, [&]<class F>() { activate_all<F, T>(exec, x, y); });
}

template <class T>
void activation_backward(Exec& exec, ActivationKind kind, Vector<const T> x, Vector<const T> dy,
                         Vector<T> dx) {
  REQUIRE(x.count == dx.count && dy.count == dx.count,
          "activation backward: x has {} elements, dy {} and dx {}", x.count, dy.count, dx.count);
  with_function(kind, [&]<class F>() { activate_all_backward<F, T>(exec, x, dy, dx); });
}

ZTRAIN_INSTANCES(activation_forward)
ZTRAIN_INSTANCES(activation_backward)

}  // namespace ztrain::kernels
