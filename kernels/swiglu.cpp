#include "kernels/swiglu.hpp"

#include "base/error.hpp"
#include "kernels/fast_exp.hpp"
#include "kernels/pieces.hpp"

namespace ztrain::kernels {
namespace {

template <class A>
KOKKOS_INLINE_FUNCTION A sigmoid(A x) {
  return A(1) / (A(1) + fast_exp(-x));
}

template <class T>
KOKKOS_INLINE_FUNCTION void forward_block(const T* __restrict gate, const T* __restrict up, T* __restrict y,
                                          std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> g = load(gate[i]);
    y[i] = static_cast<T>(g * sigmoid(g) * load(up[i]));
  }
}

/// Outputs may be inputs: each element is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION void backward_block(const T* gate, const T* up, const T* dy, T* dgate, T* dup,
                                           std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const acc_t<T> g = load(gate[i]), u = load(up[i]), gradient = load(dy[i]);
    const acc_t<T> s = sigmoid(g);
    const acc_t<T> silu = g * s;
    const acc_t<T> slope = s + silu * (1 - s);
    dgate[i] = static_cast<T>(gradient * u * slope);
    dup[i] = static_cast<T>(gradient * silu);
  }
}

}  // namespace

template <class T>
void swiglu_forward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<T> y) {
  REQUIRE(gate.count == y.count && up.count == y.count, "swiglu: gate has {} elements, up {} and y {}",
          gate.count, up.count, y.count);
  for_pieces<pack_of<T>>(
      exec, y.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        forward_block<T>(p.in(gate.data), p.in(up.data), p.out(y.data), p.n());
      });
}

template <class T>
void swiglu_backward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<const T> dy,
                     Vector<T> dgate, Vector<T> dup) {
  REQUIRE(gate.count == dy.count && up.count == dy.count && dgate.count == dy.count && dup.count == dy.count,
          "swiglu backward: gate has {} elements, up {}, dy {}, dgate {} and dup {}", gate.count, up.count,
          dy.count, dgate.count, dup.count);
  for_pieces<pack_of<T>>(
      exec, dy.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        backward_block<T>(p.in(gate.data), p.in(up.data), p.in(dy.data), p.out(dgate.data), p.out(dup.data),
                          p.n());
      });
}

#define ZTRAIN_SWIGLU(T)                                                                                \
  template void swiglu_forward<T>(Exec&, Vector<const T>, Vector<const T>, Vector<T>);                  \
  template void swiglu_backward<T>(Exec&, Vector<const T>, Vector<const T>, Vector<const T>, Vector<T>, \
                                   Vector<T>);
ZTRAIN_SWIGLU(float)
ZTRAIN_SWIGLU(bf16)
ZTRAIN_SWIGLU(f16)
ZTRAIN_SWIGLU(double)
#undef ZTRAIN_SWIGLU

}  // namespace ztrain::kernels
