// 8-bit floats of a part of a matrix, of rows or of columns, where ranks tell each other their largest
// magnitudes.

#include <gtest/gtest.h>

#include <cmath>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/fp8_quantize.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_fp8_parts_test {
namespace {

using namespace ztrain::test;

struct Size {
  std::int64_t rows, cols;
};

/// Rows, and columns, of very different sizes: parts by themselves would have other scales.
Array<bf16> uneven(Size s) {
  Array<bf16> x = random<bf16>(s.rows * s.cols, 5);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t cols = static_cast<std::size_t>(s.cols), row = i / cols, col = i % cols;
    const int exponent = static_cast<int>(row % 40 + col / 2) - 36;
    x[i] = bf16(std::ldexp(static_cast<float>(x[i]), exponent));
  }
  return x;
}

template <class Code>
struct Fp8Parts : ::testing::Test {};
using Codes = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(Fp8Parts, Codes);

/// Parts of rows, or of columns, whose largest magnitudes are told to each other, have the codes of the
/// whole.
TYPED_TEST(Fp8Parts, ThatKnowOfEachOtherHaveTheCodesOfTheWhole) {
  using Code = TypeParam;
  const TestExec exec;
  const Size s{96, 64}, half{48, 64}, columns{96, 32};
  const auto x = uneven(s);
  Array<float> factors, scale(1), scales(96), partials(fp8_quantize_workspace_bytes / sizeof(float)),
      found(2), rows_found(2 * 96);
  for (std::int64_t c = 0; c < s.cols; ++c) factors.push_back(std::exp2(static_cast<float>(c % 23 - 11)));
  Array<Code> whole(x.size()), by_rows(x.size());
  fp8_quantize_tensor<Code>(*exec, matrix(x, s.rows), matrix(whole, s.rows), nullptr, scale.data(),
                            partials.data());
  fp8_quantize_rows<Code>(*exec, matrix(x, s.rows), factors.data(), matrix(by_rows, s.rows), scales.data());
  std::vector<Array<bf16>> upper(2), left(2);
  for (std::size_t p = 0; p < 2; ++p) {
    upper[p].assign(x.begin() + static_cast<std::ptrdiff_t>(p * 48 * 64),
                    x.begin() + static_cast<std::ptrdiff_t>((p + 1) * 48 * 64));
    for (std::size_t r = 0; r < 96; ++r)
      for (std::size_t c = 0; c < 32; ++c) left[p].push_back(x[r * 64 + p * 32 + c]);
    fp8_largest_of_tensor(*exec, matrix(upper[p], half.rows), found.data() + p, partials.data());
    fp8_largest_of_rows(*exec, matrix(left[p], columns.rows), factors.data() + p * 32,
                        rows_found.data() + p * 96);
  }
  std::size_t different = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    Array<Code> codes(upper[p].size());
    Array<std::uint8_t> transposed(codes.size());
    Array<float> same(1), same_rows(96);
    fp8_quantize_tensor_by<Code>(*exec, matrix(upper[p], half.rows), matrix(codes, half.rows),
                                 transposed.data(), same.data(), {found.data(), 2});
    EXPECT_EQ(doubles(same), doubles(scale));
    for (std::size_t i = 0; i < codes.size(); ++i)
      different += codes[i].bits != whole[p * codes.size() + i].bits;
    fp8_quantize_rows<Code>(*exec, matrix(left[p], columns.rows), factors.data() + p * 32,
                            matrix(codes, columns.rows), same_rows.data(), {rows_found.data(), 2 * 96});
    EXPECT_EQ(doubles(same_rows), doubles(scales));
    for (std::size_t i = 0; i < codes.size(); ++i)
      different += codes[i].bits != by_rows[i / 32 * 64 + p * 32 + i % 32].bits;
  }
  EXPECT_EQ(different, 0U);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_fp8_parts_test
