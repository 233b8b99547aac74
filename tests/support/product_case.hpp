#pragma once
// Matrix products for tests, with what they must give in float64.

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/gemm/gemm.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::test {

/// Of a sum of `terms` products of standard normal numbers, by a host's arithmetic.
template <class T>
double sum_error(std::int64_t terms) {
  return (std::is_same_v<T, double> ? 8e-15 : 2e-6) * std::sqrt(static_cast<double>(terms));
}

/// Of a sum of n products of standard normal numbers. On CPUs the order of the sums is known. A GPU's library
/// adds in any order. Its tensor cores cut off instead of rounding, once for 8 terms or more: an error of up
/// to two units (2^-23 each) of what is summed so far or of the largest product (below 16), all of one sign.
/// Other instructions round each term, but to nearest, so that their errors hardly add up. Partial sums grow
/// as sqrt(1 .. n), on the average 2/3 sqrt(n), and the largest of thousands of elements are about five times
/// as large.
template <class T>
double product_error(std::int64_t terms) {
  if (test_gpu() == 0) return sum_error<T>(terms);
  const auto n = static_cast<double>(terms);
  const double unit = std::is_same_v<T, double> ? 0x1p-52 : 0x1p-23;
  return 2 * unit * std::ceil(n / 8) * (16 + 5 * 2.0 / 3 * std::sqrt(n));
}

struct Size {
  std::int64_t m, n, k;
};
inline const std::vector<Size> sizes = {{1, 1, 1},      {1, 257, 8},  {3, 5, 7}, {65, 20, 130},
                                        {130, 257, 64}, {64, 64, 64}, {2, 1, 65}};

/// op(A) op(B) + bias + C of the shape's strides, in float64; elements of C between rows keep their values.
template <class In, class Out>
std::vector<double> expected_product(const kernels::GemmShape& s, const Array<In>& a, const Array<In>& b,
                                     const Array<In>& bias, const Array<Out>& c) {
  std::vector<double> result = doubles(c);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = (s.bias ? static_cast<double>(bias[j]) : 0) + (s.accumulate ? result[i * s.ldc + j] : 0);
      for (std::int64_t d = 0; d < s.k; ++d)
        sum += static_cast<double>(s.trans_a ? a[d * s.lda + i] : a[i * s.lda + d]) *
               static_cast<double>(s.trans_b ? b[j * s.ldb + d] : b[d * s.ldb + j]);
      result[i * s.ldc + j] = sum;
    }
  return result;
}

/// Operands of one product, and what must become of c.
template <class In, class Out>
struct ProductCase {
  kernels::GemmShape shape;
  Array<In> a, b, bias;
  Array<Out> c;
  std::vector<double> expected;

  explicit ProductCase(const kernels::GemmShape& s)
      : shape(s),
        a(random<In>((s.trans_a ? s.k : s.m) * s.lda, 1)),
        b(random<In>((s.trans_b ? s.n : s.k) * s.ldb, 2)),
        bias(random<In>(s.n, 3)),
        c(random<Out>(s.m * s.ldc, 4)),
        expected(expected_product(s, a, b, bias, c)) {}

  /// error: of an element of c, as expect_close takes it.
  void expect_result(double error) const { expect_close(c, expected, error, "c"); }
};

}  // namespace ztrain::test
