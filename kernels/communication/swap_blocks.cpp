#include "kernels/communication/swap_blocks.hpp"

#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {

template <class T>
void swap_blocks(Exec& exec, Vector<const T> x, std::int64_t outer, std::int64_t inner, Vector<T> y) {
  const std::int64_t blocks = outer * inner;
  REQUIRE(outer > 0 && inner > 0 && x.count % blocks == 0 && y.count == x.count,
          "swap_blocks: x has {} elements and y {}, which are not {} x {} blocks", x.count, y.count, outer,
          inner);
  const std::int64_t width = x.count / blocks;
  for_wide_rows(
      exec, blocks, width, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t i) {
        const T* const from = x.data + i * width;
        T* const to = y.data + (i % inner * outer + i / inner) * width;
        lanes.each(width, [&](std::int64_t at, std::int64_t n) { RowPiece{at, n}.copy(from, to); });
      });
}

ZTRAIN_INSTANCES(swap_blocks)

}  // namespace ztrain::kernels
