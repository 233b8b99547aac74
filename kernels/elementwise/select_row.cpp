#include "kernels/elementwise/select_row.hpp"

#include "base/error.hpp"
#include "kernels/head/embedding.hpp"

namespace ztrain::kernels {

/// A selection is an embedding of one token.
template <class T>
void select_row(Exec& exec, Matrix<const T> x, Vector<const std::int32_t> index, Matrix<T> y) {
  REQUIRE(index.count == 1 && y.rows == 1 && y.cols == x.cols,
          "select_row: x is [{}, {}], but index has {} elements and y is [{}, {}]", x.rows, x.cols,
          index.count, y.rows, y.cols);
  embedding_forward<T>(exec, index, x, y);
}

template void select_row<float>(Exec&, Matrix<const float>, Vector<const std::int32_t>, Matrix<float>);
template void select_row<bf16>(Exec&, Matrix<const bf16>, Vector<const std::int32_t>, Matrix<bf16>);
template void select_row<f16>(Exec&, Matrix<const f16>, Vector<const std::int32_t>, Matrix<f16>);
template void select_row<double>(Exec&, Matrix<const double>, Vector<const std::int32_t>, Matrix<double>);

}  // namespace ztrain::kernels
