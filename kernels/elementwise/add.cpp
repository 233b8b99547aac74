#include "kernels/elementwise/add.hpp"

#include "base/error.hpp"
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

}  // namespace

template <class T>
void add(Exec& exec, Vector<const T> a, Vector<const T> b, Vector<T> c) {
  REQUIRE(a.count == b.count && a.count == c.count, "add: a has {} elements, b {} and c {}", a.count, b.count,
          c.count);
  for_pieces<pack_of<T>>(
      exec, c.count,
      KOKKOS_LAMBDA(const PieceOf<T> p) { add_block<T>(p.in(a.data), p.in(b.data), p.out(c.data), p.n()); });
}

template void add<float>(Exec&, Vector<const float>, Vector<const float>, Vector<float>);
template void add<bf16>(Exec&, Vector<const bf16>, Vector<const bf16>, Vector<bf16>);
template void add<f16>(Exec&, Vector<const f16>, Vector<const f16>, Vector<f16>);
template void add<double>(Exec&, Vector<const double>, Vector<const double>, Vector<double>);

}  // namespace ztrain::kernels
