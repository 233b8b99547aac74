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

}  // namespace

template <class A, class B>
void cast(Exec& exec, Vector<const A> src, Vector<B> dst) {
  REQUIRE(src.count == dst.count, "cast: the source has {} elements, the destination {}", src.count,
          dst.count);
  for_pieces<pack_of<A, B>>(
      exec, dst.count,
      KOKKOS_LAMBDA(const PieceOf<A, B> p) { cast_block<A, B>(p.in(src.data), p.out(dst.data), p.n()); });
}

#define ZTRAIN_CAST(from, to) ZTRAIN_INSTANCE(cast, from, to)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, float)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, bf16)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, f16)
ZTRAIN_FOR_FLOATS(ZTRAIN_CAST, double)

}  // namespace ztrain::kernels
