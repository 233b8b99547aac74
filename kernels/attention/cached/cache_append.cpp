#include "base/error.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/launch/pieces.hpp"

namespace ztrain::kernels {

template <class T>
void cache_append(Exec& exec, Matrix<const T> rows, Vector<const std::int32_t> begin, Matrix<T> cache) {
  const std::int64_t heads = cache.cols > 0 ? rows.cols / cache.cols : 0;
  REQUIRE(begin.count == 1 && heads > 0 && rows.cols == heads * cache.cols && cache.rows % heads == 0,
          "cache_append: rows are [{}, {}], but the cache is [{}, {}] and begin has {} elements", rows.rows,
          rows.cols, cache.rows, cache.cols, begin.count);
  const std::int64_t capacity = cache.rows / heads, width = cache.cols;
  for_wide_rows(
      exec, rows.rows * heads, width, KOKKOS_LAMBDA(const Lanes& lanes, const std::int64_t i) {
        const std::int64_t row = begin.data[0] + i / heads;
        if (row < 0 || row >= capacity) return;
        const T* const from = rows.data + i * width;
        T* const to = cache.data + (i % heads * capacity + row) * width;
        lanes.each(width, [&](std::int64_t at, std::int64_t n) { RowPiece{at, n}.copy(from, to); });
      });
}

ZTRAIN_INSTANCES(cache_append)

}  // namespace ztrain::kernels
