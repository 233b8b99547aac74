#include "kernels/elementwise/scale.hpp"

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

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
void scale(Exec& exec, Vector<const T> x, double factor, Vector<T> y) {
  REQUIRE(x.count == y.count, "scale: x has {} elements and y {}", x.count, y.count);
  const auto by = static_cast<acc_t<T>>(factor);
  for_pieces<pack_of<T>>(
      exec, y.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { scale_block<T>(p.in(x.data), by, p.out(y.data), p.n()); });
}

template void scale<float>(Exec&, Vector<const float>, double, Vector<float>);
template void scale<bf16>(Exec&, Vector<const bf16>, double, Vector<bf16>);
template void scale<f16>(Exec&, Vector<const f16>, double, Vector<f16>);
template void scale<double>(Exec&, Vector<const double>, double, Vector<double>);

}  // namespace ztrain::kernels
