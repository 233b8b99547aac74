// The GPU's loop for matrix products (kernels/gemm/gemm_reference.cu), run on the host.

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/gemm/gemm.hpp"
#include "tests/cuda_on_host/orders.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/product_case.hpp"

namespace ztrain::kernels {

/// Of the tests in this file: a stream, and no backend.
struct Exec {
  CUstream_st stream;
};
void* native_stream(const Exec& exec) {
  return const_cast<CUstream_st*>(&exec.stream);
}

namespace products_test {
namespace {

using namespace ztrain::test;

/// Blocks of 64 x 64 and sums of 16 at a time, with what is left of them.
const std::vector<Size> shapes = {{1, 1, 1},  {3, 5, 7},    {64, 64, 64}, {65, 20, 130}, {1, 257, 8},
                                  {2, 1, 65}, {63, 65, 15}, {130, 3, 16}, {64, 128, 17}, {17, 66, 33}};

/// Every two of: shape, order, and each of the shape's variants.
template <class In, class Out>
void check_products() {
  if (under_tsan && !std::is_same_v<In, bf16>) GTEST_SKIP() << "the code is that of bf16";
  const int count = static_cast<int>(shapes.size());
  for (const auto& row : Pairwise({count, 3, 2, 2, 2, 2, 2}).rows()) {
    const Size size = shapes[static_cast<std::size_t>(row[0])];
    GemmShape s = complete({.trans_a = row[2] == 1,
                            .trans_b = row[3] == 1,
                            .m = size.m,
                            .n = size.n,
                            .k = size.k,
                            .accumulate = row[4] == 1,
                            .bias = row[5] == 1});
    for (std::int64_t* stride : {&s.lda, &s.ldb, &s.ldc}) *stride += 5 * row[6];
    SCOPED_TRACE(::testing::Message() << "m " << s.m << " n " << s.n << " k " << s.k << " transposed "
                                      << s.trans_a << s.trans_b << " accumulate " << s.accumulate << " bias "
                                      << s.bias << " gap " << 5 * row[6] << " order " << row[1]);
    ProductCase<In, Out> product(s);
    Exec exec{{orders[row[1]]}};
    make_gemm_reference(s, dtype_of<In>(), dtype_of<Out>())
        ->run(exec, product.a.data(), product.b.data(), product.bias.data(), product.c.data(), nullptr);
    product.expect_result(sum_error<In>(s.k + 2));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(CudaProducts, Fp32) {
  check_products<float, float>();
}
TEST(CudaProducts, Bf16) {
  check_products<bf16, bf16>();
}
TEST(CudaProducts, Bf16ToFp32) {
  check_products<bf16, float>();
}
TEST(CudaProducts, Fp16) {
  check_products<f16, f16>();
}
TEST(CudaProducts, Fp16ToFp32) {
  check_products<f16, float>();
}
TEST(CudaProducts, Fp64) {
  check_products<double, double>();
}

/// What the loop does not read is NaN here: between the rows of A, B and C, and a C that is not added to.
TEST(CudaProducts, ReadNothingElse) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  GemmShape s = complete({.m = 66, .n = 5, .k = 19});
  for (std::int64_t* stride : {&s.lda, &s.ldb, &s.ldc}) *stride += 3;
  ProductCase<float, float> product(s);
  for (std::int64_t i = 0; i < s.m; ++i) std::fill_n(product.a.begin() + i * s.lda + s.k, 3, nan);
  for (std::int64_t i = 0; i < s.k; ++i) std::fill_n(product.b.begin() + i * s.ldb + s.n, 3, nan);
  std::fill(product.c.begin(), product.c.end(), nan);
  Exec exec{};
  make_gemm_reference(s, DType::f32, DType::f32)
      ->run(exec, product.a.data(), product.b.data(), nullptr, product.c.data(), nullptr);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.ldc; ++j) {
      const auto at = static_cast<std::size_t>(i * s.ldc + j);
      const double off = std::abs(product.c[at] - product.expected[at]);
      EXPECT_TRUE(j < s.n ? off < 1e-4 : std::isnan(product.c[at])) << i << " " << j << ": " << product.c[at];
    }
}

TEST(CudaProducts, OtherTypesAreRefused) {
  EXPECT_THROW(make_gemm_reference({.m = 3, .n = 4, .k = 5}, DType::f32, DType::bf16), Error);
  EXPECT_THROW(make_gemm_reference({.m = 3, .n = 4, .k = 5}, DType::f16, DType::bf16), Error);
  EXPECT_THROW(make_gemm_reference({.m = 1 << 20, .n = 1 << 23, .k = 5}, DType::f32, DType::f32), Error)
      << "more blocks than a launch has";
}

}  // namespace
}  // namespace products_test
}  // namespace ztrain::kernels
