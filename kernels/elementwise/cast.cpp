#include "kernels/elementwise/cast.hpp"

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

template <class A, class B>
KOKKOS_INLINE_FUNCTION void cast_block(const A* __restrict src, B* __restrict dst, std::int64_t n) {
  if constexpr (widens<B> && std::is_same_v<A, float>) {
    narrow(src, dst, n);
  } else if constexpr (widens<A> && std::is_same_v<B, float>) {
    widen(src, dst, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) dst[i] = static_cast<B>(load(src[i]));
  }
}

template <class A, class B>
KOKKOS_INLINE_FUNCTION void accumulate_block(const A* __restrict src, B* __restrict dst, std::int64_t n) {
  if constexpr (widens<A> && std::is_same_v<B, float>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(src + begin, values, count);
      for (std::int64_t i = 0; i < count; ++i) dst[begin + i] += values[i];
    });
  } else {
    for (std::int64_t i = 0; i < n; ++i) dst[i] += static_cast<B>(load(src[i]));
  }
}

}  // namespace

template <class A, class B>
void cast(Exec& exec, Vector<const A> src, Vector<B> dst) {
  REQUIRE(src.count == dst.count, "cast: the source has {} elements, the destination {}", src.count,
          dst.count);
  for_pieces<pack_of<A, B>>(
      exec, dst.count,
      KOKKOS_LAMBDA(const PieceOf<A, B> p) { cast_block<A, B>(p.in(src.data), p.out(dst.data), p.n()); });
}

template <class A, class B>
void accumulate_cast(Exec& exec, Vector<const A> src, Vector<B> dst) {
  REQUIRE(src.count == dst.count, "accumulate_cast: the source has {} elements, the destination {}",
          src.count, dst.count);
  for_pieces<pack_of<A, B>>(
      exec, dst.count, KOKKOS_LAMBDA(const PieceOf<A, B> p) {
        accumulate_block<A, B>(p.in(src.data), p.both(dst.data), p.n());
      });
}

#define ZTRAIN_CAST(A)                                                            \
  template void cast<A, float>(Exec&, Vector<const A>, Vector<float>);            \
  template void cast<A, bf16>(Exec&, Vector<const A>, Vector<bf16>);              \
  template void cast<A, f16>(Exec&, Vector<const A>, Vector<f16>);                \
  template void cast<A, double>(Exec&, Vector<const A>, Vector<double>);          \
  template void accumulate_cast<A, float>(Exec&, Vector<const A>, Vector<float>); \
  template void accumulate_cast<A, double>(Exec&, Vector<const A>, Vector<double>);
ZTRAIN_CAST(float)
ZTRAIN_CAST(bf16)
ZTRAIN_CAST(f16)
ZTRAIN_CAST(double)
#undef ZTRAIN_CAST

}  // namespace ztrain::kernels
