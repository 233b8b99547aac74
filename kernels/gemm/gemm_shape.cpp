#include "base/error.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {

GemmShape complete(GemmShape s) {
  REQUIRE(s.m > 0 && s.n > 0 && s.k > 0, "matrix product: m = {}, n = {}, k = {} must be positive", s.m, s.n,
          s.k);
  const std::int64_t a_cols = s.trans_a ? s.m : s.k, b_cols = s.trans_b ? s.k : s.n;
  if (s.lda == 0) s.lda = a_cols;
  if (s.ldb == 0) s.ldb = b_cols;
  if (s.ldc == 0) s.ldc = s.n;
  REQUIRE(s.lda >= a_cols && s.ldb >= b_cols && s.ldc >= s.n,
          "matrix product: row strides {}, {}, {} are shorter than the rows of {}, {}, {} elements", s.lda,
          s.ldb, s.ldc, a_cols, b_cols, s.n);
  return s;
}

bool is_row_product(const GemmShape& s, DType in, DType out) {
  const bool computes = in == DType::f32 || in == DType::bf16 || in == DType::f16 || in == DType::f64;
  return s.m == 1 && s.trans_b && !s.trans_a && !s.accumulate && in == out && computes;
}

}  // namespace ztrain::kernels
