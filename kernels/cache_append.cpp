#include "kernels/cache_append.hpp"

#include <cstring>

#include "base/error.hpp"
#include "kernels/rows.hpp"

namespace ztrain::kernels {

template <class T>
void cache_append(Exec& exec, Matrix<const T> rows, Vector<const std::int32_t> begin, Matrix<T> cache) {
  REQUIRE(begin.count == 1 && rows.cols == cache.cols,
          "cache_append: rows are [{}, {}], but the cache is [{}, {}] and begin has {} elements", rows.rows,
          rows.cols, cache.rows, cache.cols, begin.count);
  const auto row_bytes = static_cast<std::size_t>(rows.cols) * sizeof(T);
  for_rows(
      exec, rows.rows, KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t row = begin.data[0] + i;
        if (row >= 0 && row < cache.rows)
          std::memcpy(cache.data + row * cache.cols, rows.data + i * rows.cols, row_bytes);
      });
}

template void cache_append<float>(Exec&, Matrix<const float>, Vector<const std::int32_t>, Matrix<float>);
template void cache_append<bf16>(Exec&, Matrix<const bf16>, Vector<const std::int32_t>, Matrix<bf16>);
template void cache_append<f16>(Exec&, Matrix<const f16>, Vector<const std::int32_t>, Matrix<f16>);
template void cache_append<double>(Exec&, Matrix<const double>, Vector<const std::int32_t>, Matrix<double>);

}  // namespace ztrain::kernels
