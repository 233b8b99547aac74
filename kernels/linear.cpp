#include "kernels/linear.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/exec_kokkos.hpp"

namespace ztrain::kernels {
namespace {

constexpr std::int64_t column_block = 64;
constexpr std::int64_t row_block = 128;

/// Sums row_block rows at a time and then the sums, so that the rounding error grows with the root of the
/// tokens.
template <class T, class G>
void column_sums(const T* dy, std::int64_t rows, std::int64_t stride, std::int64_t cols, G* db,
                 bool accumulate) {
  using A = acc_t<T>;
  A total[column_block] = {};
  for (std::int64_t r0 = 0; r0 < rows; r0 += row_block) {
    A partial[column_block] = {};
    for (std::int64_t r = r0; r < std::min(rows, r0 + row_block); ++r) {
      const T* __restrict row = dy + r * stride;
      for (std::int64_t c = 0; c < cols; ++c) partial[c] += static_cast<A>(row[c]);
    }
    for (std::int64_t c = 0; c < cols; ++c) total[c] += partial[c];
  }
  for (std::int64_t c = 0; c < cols; ++c)
    db[c] = static_cast<G>(accumulate ? static_cast<A>(db[c]) + total[c] : total[c]);
}

}  // namespace

std::unique_ptr<Gemm> make_linear(const LinearShape& s, DType type, bool bias) {
  return make_gemm({.trans_b = true, .m = s.tokens, .n = s.out, .k = s.in, .bias = bias}, type, type);
}

std::unique_ptr<Gemm> make_linear_grad_input(const LinearShape& s, DType type, bool accumulate) {
  return make_gemm({.m = s.tokens, .n = s.in, .k = s.out, .accumulate = accumulate}, type, type);
}

std::unique_ptr<Gemm> make_linear_grad_weight(const LinearShape& s, DType type, DType gradient,
                                              bool accumulate) {
  return make_gemm({.trans_a = true, .m = s.out, .n = s.in, .k = s.tokens, .accumulate = accumulate}, type,
                   gradient);
}

template <class T, class G>
void linear_grad_bias(Exec& exec, Matrix<const T> dy, Vector<G> db, bool accumulate) {
  REQUIRE(db.count == dy.cols, "linear bias gradient: {} elements for {} columns", db.count, dy.cols);
  const std::int64_t blocks = (dy.cols + column_block - 1) / column_block;
  Kokkos::parallel_for(Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace>(exec.space, 0, blocks),
                       [=](std::int64_t i) {
                         const std::int64_t c0 = i * column_block;
                         column_sums(dy.data + c0, dy.rows, dy.cols, std::min(column_block, dy.cols - c0),
                                     db.data + c0, accumulate);
                       });
}

template void linear_grad_bias(Exec&, Matrix<const float>, Vector<float>, bool);
template void linear_grad_bias(Exec&, Matrix<const bf16>, Vector<float>, bool);
template void linear_grad_bias(Exec&, Matrix<const bf16>, Vector<bf16>, bool);
template void linear_grad_bias(Exec&, Matrix<const f16>, Vector<float>, bool);
template void linear_grad_bias(Exec&, Matrix<const f16>, Vector<f16>, bool);
template void linear_grad_bias(Exec&, Matrix<const double>, Vector<double>, bool);

}  // namespace ztrain::kernels
