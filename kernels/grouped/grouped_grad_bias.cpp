#include "base/error.hpp"
#include "kernels/grouped/grouped.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/team_column_sums.hpp"

namespace ztrain::kernels {

template <class T, class G>
void grouped_grad_bias(Exec& exec, Matrix<const T> dy, const std::int32_t* offsets, Matrix<G> db,
                       bool accumulate) {
  REQUIRE(db.cols == dy.cols, "bias gradient of groups: {} elements for {} columns", db.cols, dy.cols);
  using Sums = TeamColumnSums<T, G>;
  static_assert(carried<Sums>);
  if constexpr (on_gpu) {
    const Sums sums{dy, db.data, accumulate, offsets};
    for_teams(exec, db.rows * sums.blocks(), Sums::threads, 1, Sums::shared_bytes, sums);
  } else {
    for (std::int64_t e = 0; e < db.rows; ++e)
      linear_grad_bias<T, G>(exec, {dy.data + offsets[e] * dy.cols, offsets[e + 1] - offsets[e], dy.cols},
                             {db.data + e * db.cols, db.cols}, accumulate);
  }
}

ZTRAIN_GRADIENT_INSTANCES(grouped_grad_bias)

}  // namespace ztrain::kernels
