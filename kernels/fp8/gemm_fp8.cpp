#include "kernels/fp8/gemm_fp8.hpp"

#include "base/error.hpp"

namespace ztrain::kernels {

GemmFp8Shape complete(GemmFp8Shape s) {
  REQUIRE(s.m > 0 && s.n > 0 && s.k > 0 && s.n % gemm_fp8_multiple == 0 && s.k % gemm_fp8_multiple == 0,
          "fp8 matrix product: m = {}, n = {}, k = {} must be positive, and n and k multiples of {}", s.m,
          s.n, s.k, gemm_fp8_multiple);
  if (s.lda == 0) s.lda = s.k;
  if (s.ldb == 0) s.ldb = s.k;
  if (s.ldc == 0) s.ldc = s.n;
  REQUIRE(s.lda >= s.k && s.ldb >= s.k && s.ldc >= s.n,
          "fp8 matrix product: row strides {}, {}, {} are shorter than the rows of {}, {}, {} elements",
          s.lda, s.ldb, s.ldc, s.k, s.k, s.n);
  REQUIRE(s.lda % gemm_fp8_multiple == 0 && s.ldb % gemm_fp8_multiple == 0 &&
              s.ldc % (gemm_fp8_multiple / 2) == 0,
          "fp8 matrix product: row strides {}, {}, {} are no multiples of 16 bytes", s.lda, s.ldb, s.ldc);
  return s;
}

}  // namespace ztrain::kernels
