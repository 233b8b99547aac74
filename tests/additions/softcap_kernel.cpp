#include <cmath>

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"
#include "tests/additions/softcap_kernel.hpp"

namespace ztrain::kernels {

template <class T>
void softcap(Exec& exec, Vector<const T> x, double cap, Vector<T> y) {
  REQUIRE(x.count == y.count, "softcap: x has {} elements and y {}", x.count, y.count);
  const auto limit = static_cast<acc_t<T>>(cap);
  for_pieces<pack_of<T>>(
      exec, y.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        const T* from = p.in(x.data);
        T* to = p.out(y.data);
        for (std::int64_t i = 0; i < p.n(); ++i)
          to[i] = static_cast<T>(limit * std::tanh(load(from[i]) / limit));
      });
}

template <class T>
void softcap_grad(Exec& exec, Vector<const T> y, Vector<const T> dy, double cap, Vector<T> dx) {
  REQUIRE(y.count == dx.count && dy.count == dx.count, "softcap_grad: {}, {} and {} elements", y.count,
          dy.count, dx.count);
  const auto limit = static_cast<acc_t<T>>(cap);
  for_pieces<pack_of<T>>(
      exec, dx.count, KOKKOS_LAMBDA(const PieceOf<T> p) {
        const T *value = p.in(y.data), *gradient = p.in(dy.data);
        T* to = p.out(dx.data);
        for (std::int64_t i = 0; i < p.n(); ++i) {
          const acc_t<T> share = load(value[i]) / limit;
          to[i] = static_cast<T>(load(gradient[i]) * (1 - share * share));
        }
      });
}

ZTRAIN_INSTANCES(softcap)
ZTRAIN_INSTANCES(softcap_grad)

}  // namespace ztrain::kernels
