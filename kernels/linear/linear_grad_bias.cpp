#include "base/error.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/team_column_sums.hpp"

namespace ztrain::kernels {
namespace {

/// On a CPU: sums row_block rows at a time and then the sums, so that the rounding error grows with the root
/// of the tokens.
template <class T, class G>
struct ColumnSums {
  static constexpr std::int64_t row_block = 128;

  Matrix<const T> dy;
  G* db;
  bool accumulate;

  void operator()(std::int64_t begin, std::int64_t n) const {
    using A = acc_t<T>;
    A total[column_block] = {};
    for (std::int64_t r0 = 0; r0 < dy.rows; r0 += row_block) {
      A partial[column_block] = {};
      for (std::int64_t r = r0; r < std::min(dy.rows, r0 + row_block); ++r) {
        const T* __restrict row = dy.data + r * dy.cols + begin;
        for (std::int64_t c = 0; c < n; ++c) partial[c] += static_cast<A>(row[c]);
      }
      for (std::int64_t c = 0; c < n; ++c) total[c] += partial[c];
    }
    for (std::int64_t c = 0; c < n; ++c) write_sum(total[c], db[begin + c], accumulate);
  }
};

}  // namespace

template <class T, class G>
void linear_grad_bias(Exec& exec, Matrix<const T> dy, Vector<G> db, bool accumulate) {
  REQUIRE(db.count == dy.cols, "linear bias gradient: {} elements for {} columns", db.count, dy.cols);
  using Sums = TeamColumnSums<T, G>;
  static_assert(carried<Sums>);
  if constexpr (on_gpu) {
    const Sums sums{dy, db.data, accumulate};
    for_teams(exec, sums.blocks(), Sums::threads, 1, Sums::shared_bytes, sums);
  } else {
    for_blocks<column_block>(exec, dy.cols, ColumnSums<T, G>{dy, db.data, accumulate});
  }
}

ZTRAIN_GRADIENT_INSTANCES(linear_grad_bias)

}  // namespace ztrain::kernels
