#include "tests/additions/geglu/geglu.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// gelu and its derivative.
template <class A>
struct Gelu {
  A value, slope;
};

template <class A>
KOKKOS_INLINE_FUNCTION Gelu<A> gelu(A g) {
  const A root = A(0.7978845608028654), cubic = A(0.044715);  // sqrt(2 / pi)
  const A t = std::tanh(root * (g + cubic * g * g * g));
  const A inner = root * (1 + 3 * cubic * g * g);
  return {g / 2 * (1 + t), (1 + t) / 2 + g / 2 * (1 - t * t) * inner};
}

}  // namespace

template <class T>
void geglu_forward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<T> y) {
  REQUIRE(gate.count == y.count && up.count == y.count, "geglu: gate has {} elements, up {} and y {}",
          gate.count, up.count, y.count);
  for_pieces<pack_of<T>>(
      exec, y.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        const T *g = p.in(gate.data), *u = p.in(up.data);
        T* to = p.out(y.data);
        for (std::int64_t i = 0; i < p.n(); ++i)
          to[i] = static_cast<T>(gelu<acc_t<T>>(load(g[i])).value * load(u[i]));
      });
}

template <class T>
void geglu_backward(Exec& exec, Vector<const T> gate, Vector<const T> up, Vector<const T> dy, Vector<T> dgate,
                    Vector<T> dup) {
  REQUIRE(gate.count == dy.count && up.count == dy.count && dgate.count == dy.count && dup.count == dy.count,
          "geglu backward: {}, {}, {}, {} and {} elements", gate.count, up.count, dy.count, dgate.count,
          dup.count);
  for_pieces<pack_of<T>>(
      exec, dy.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        const T *g = p.in(gate.data), *u = p.in(up.data), *gradient = p.in(dy.data);
        T *dg = p.out(dgate.data), *du = p.out(dup.data);
        for (std::int64_t i = 0; i < p.n(); ++i) {
          const Gelu<acc_t<T>> gated = gelu<acc_t<T>>(load(g[i]));
          const acc_t<T> d = load(gradient[i]);
          dg[i] = static_cast<T>(d * load(u[i]) * gated.slope);
          du[i] = static_cast<T>(d * gated.value);
        }
      });
}

ZTRAIN_INSTANCES(geglu_forward)
ZTRAIN_INSTANCES(geglu_backward)

}  // namespace ztrain::kernels
