// 8-bit floats: quantisation, transposition, products of codes, and weights quantised in shards.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/fp8_quantize.hpp"
#include "kernels/fp8/fp8_weights.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/fp8/reference.hpp"
#include "layout/layout.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_fp8_test {
namespace {

using namespace ztrain::test;

template <class Code>
constexpr double largest_code = std::is_same_v<Code, f8e4m3> ? 448 : 57344;

template <class Code>
std::vector<double> values_of(const Array<Code>& codes, const Array<float>& scales) {
  std::vector<double> values;
  const std::size_t group = codes.size() / scales.size();
  for (std::size_t i = 0; i < codes.size(); ++i)
    values.push_back(static_cast<double>(static_cast<float>(codes[i])) *
                     static_cast<double>(scales[i / group]));
  return values;
}

struct Size {
  std::int64_t rows, cols;
};
const std::vector<Size> sizes = {{1, 16}, {3, 48}, {37, 272}, {64, 1024}};
constexpr std::size_t parts = fp8_quantize_workspace_bytes / sizeof(float);

/// Rows of very different sizes, one of zeros, and one whose largest element is that of the codes.
Array<bf16> uneven(Size s, double largest) {
  Array<bf16> x = random<bf16>(s.rows * s.cols, 5);
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t c = 0; c < s.cols; ++c) {
      bf16& v = x[static_cast<std::size_t>(r * s.cols + c)];
      v = r % 7 == 2 ? bf16(0.0F) : bf16(static_cast<float>(v) * std::exp2(static_cast<float>(r % 40 - 20)));
    }
  if (s.rows > 3) x[static_cast<std::size_t>(3 * s.cols + 1)] = bf16(static_cast<float>(-largest));
  return x;
}

template <class Code>
struct Fp8Quantize : ::testing::Test {};
using Codes = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(Fp8Quantize, Codes);

TYPED_TEST(Fp8Quantize, ByTensorAndByRow) {
  using Code = TypeParam;
  const TestExec exec;
  for (const Size s : sizes) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.cols);
    const auto x = uneven(s, largest_code<Code>);
    for (const bool rowwise : {false, true}) {
      Array<Code> codes(x.size());
      Array<float> scales(static_cast<std::size_t>(rowwise ? s.rows : 1)), partials(parts);
      if (rowwise)
        fp8_quantize_rows<Code>(*exec, matrix(x, s.rows), nullptr, matrix(codes, s.rows), scales.data());
      else
        fp8_quantize_tensor<Code>(*exec, matrix(x, s.rows), matrix(codes, s.rows), nullptr, scales.data(),
                                  partials.data());
      const auto expected =
          reference::fp8_quantize<Code>(doubles(x), x.size() / scales.size(), largest_code<Code>);
      EXPECT_EQ(doubles(scales), expected.scales);
      EXPECT_EQ(values_of(codes, scales), expected.values);
    }
  }
}

TYPED_TEST(Fp8Quantize, RowsTimesColumns) {
  using Code = TypeParam;
  const TestExec exec;
  const Size s{19, 80};
  const auto x = uneven(s, largest_code<Code>);
  Array<float> columns;
  std::vector<double> product = doubles(x);
  for (std::int64_t c = 0; c < s.cols; ++c) columns.push_back(std::exp2(static_cast<float>(c % 23 - 11)));
  for (std::size_t i = 0; i < product.size(); ++i)
    product[i] *= static_cast<double>(columns[i % columns.size()]);
  Array<Code> codes(x.size());
  Array<float> scales(static_cast<std::size_t>(s.rows));
  fp8_quantize_rows<Code>(*exec, matrix(x, s.rows), columns.data(), matrix(codes, s.rows), scales.data());
  const auto expected =
      reference::fp8_quantize<Code>(product, static_cast<std::size_t>(s.cols), largest_code<Code>);
  EXPECT_EQ(doubles(scales), expected.scales);
  EXPECT_EQ(values_of(codes, scales), expected.values);
}

/// Every element of a row with an infinity or a NaN becomes NaN, and no other row's.
TYPED_TEST(Fp8Quantize, WhatIsNotFiniteIsSeen) {
  using Code = TypeParam;
  const TestExec exec;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    auto x = random<bf16>(3 * 32, 1);
    x[40] = bf16(bad);
    Array<Code> codes(x.size());
    Array<float> scales(3), partials(parts);
    fp8_quantize_rows<Code>(*exec, matrix(x, 3), nullptr, matrix(codes, 3), scales.data());
    EXPECT_TRUE(std::isnan(scales[1]) && std::isfinite(scales[0]) && std::isfinite(scales[2])) << bad;
    fp8_quantize_tensor<Code>(*exec, matrix(x, 3), matrix(codes, 3), nullptr, scales.data(), partials.data());
    EXPECT_TRUE(std::isnan(scales[0])) << bad;
  }
}

/// Codes and their transpose at once are the codes alone, and those transposed. The largest sizes are looked
/// through in several parts.
TYPED_TEST(Fp8Quantize, BothWaysRound) {
  using Code = TypeParam;
  const TestExec exec;
  for (const Size s : {Size{16, 16}, {48, 272}, {144, 528}, {272, 80}, {1040, 2064}}) {
    SCOPED_TRACE(::testing::Message() << s.rows << " " << s.cols);
    const auto x = uneven(s, largest_code<Code>);
    Array<Code> expected(x.size()), codes(x.size());
    Array<std::uint8_t> transposed(x.size());
    Array<float> expected_scale(1), scale(1), partials(parts);
    fp8_quantize_tensor<Code>(*exec, matrix(x, s.rows), matrix(expected, s.rows), nullptr,
                              expected_scale.data(), partials.data());
    fp8_quantize_tensor<Code>(*exec, matrix(x, s.rows), matrix(codes, s.rows), transposed.data(),
                              scale.data(), partials.data());
    EXPECT_EQ(doubles(scale), doubles(expected_scale));
    std::size_t different = 0;
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t c = 0; c < s.cols; ++c) {
        const std::uint8_t bits = expected[static_cast<std::size_t>(r * s.cols + c)].bits;
        different += codes[static_cast<std::size_t>(r * s.cols + c)].bits != bits;
        different += transposed[static_cast<std::size_t>(c * s.rows + r)] != bits;
      }
    EXPECT_EQ(different, 0U);
  }
}

TYPED_TEST(Fp8Quantize, RefusesWhatItCannotDo) {
  using Code = TypeParam;
  const TestExec exec;
  const auto x = random<bf16>(17 * 32, 1);
  Array<Code> codes(x.size());
  Array<std::uint8_t> transposed(x.size());
  Array<float> scale(1), partials(parts);
  const auto quantize = [&](const bf16* from, std::int64_t rows, std::int64_t cols, std::uint8_t* other) {
    fp8_quantize_tensor<Code>(*exec, {from, rows, cols}, {codes.data(), rows, cols}, other, scale.data(),
                              partials.data());
  };
  EXPECT_THROW(quantize(x.data(), 16, 24, nullptr), Error);
  EXPECT_THROW(quantize(x.data(), 17, 32, transposed.data()), Error);
  EXPECT_THROW(quantize(x.data() + 1, 16, 32, nullptr), Error);
  EXPECT_THROW(quantize(x.data(), 16, 32, transposed.data() + 8), Error);
}

TEST(Fp8Transpose, OfAnySize) {
  const TestExec exec;
  for (const Size s : {Size{16, 16}, {16, 144}, {144, 16}, {48, 80}, {272, 208}}) {
    Array<std::uint8_t> from(static_cast<std::size_t>(s.rows * s.cols)), to(from.size()),
        expected(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(philox(1, 2, i)[0]);
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t c = 0; c < s.cols; ++c)
        expected[static_cast<std::size_t>(c * s.rows + r)] = from[static_cast<std::size_t>(r * s.cols + c)];
    fp8_transpose(*exec, {from.data(), s.rows, s.cols}, to.data(), nullptr);
    EXPECT_EQ(to, expected) << s.rows << " " << s.cols;
    Array<float> ones(static_cast<std::size_t>(s.cols), -1.0F);
    fp8_transpose(*exec, {from.data(), s.rows, s.cols}, to.data(), ones.data());
    EXPECT_EQ(to, expected) << s.rows << " " << s.cols;
    EXPECT_EQ(ones, Array<float>(ones.size(), 1.0F));
  }
}

/// Codes of normal numbers, and scales that are no powers of two.
template <class Code>
Array<Code> random_codes(std::int64_t count, std::uint64_t seed) {
  return random<Code>(count, seed, largest_code<Code> / 8);
}
Array<float> random_scales(std::int64_t count, std::uint64_t seed) {
  Array<float> scales = random<float>(count, seed);
  for (float& s : scales) s = 0.01F + std::abs(s);
  return scales;
}

/// Of a sum whose largest absolute value on the way, or that of a term, is `largest`. Hopper's instructions
/// bring 32 products and what is summed so far to the exponent of the largest, and cut them off behind 14
/// bits: each of them loses less than 2^-13 of it.
double sum_error(std::int64_t k, double largest) {
  const auto terms = static_cast<double>(k + ceil_div(k, 32));
  return (test_gpu() > 0 ? 0x1p-13 * terms : 1e-6 * std::sqrt(static_cast<double>(k))) * largest;
}

template <class A, class B, class Out>
void check_product(GemmFp8Shape s) {
  s = complete(s);
  const bool rowwise = s.scales == Fp8Scales::rowwise;
  const auto a = random_codes<A>(s.m * s.lda, 1);
  const auto b = random_codes<B>(s.n * s.ldb, 2);
  const auto a_scale = random_scales(rowwise ? s.m : 1, 3), b_scale = random_scales(rowwise ? s.n : 1, 4);
  const auto bias = random<bf16>(s.n, 5);
  auto c = random<Out>(s.m * s.ldc, 6);
  std::vector<double> expected = doubles(c), error(expected.size());
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0, largest = 0;
      for (std::int64_t d = 0; d < s.k; ++d) {
        const double term = static_cast<double>(static_cast<float>(a[i * s.lda + d])) *
                            static_cast<double>(static_cast<float>(b[j * s.ldb + d]));
        sum += term;
        largest = std::max({largest, std::abs(sum), std::abs(term)});
      }
      const double scale =
          static_cast<double>(a_scale[rowwise ? i : 0]) * static_cast<double>(b_scale[rowwise ? j : 0]);
      double& to = expected[i * s.ldc + j];
      to = sum * scale + (s.bias ? static_cast<double>(bias[j]) : 0) + (s.accumulate ? to : 0);
      error[i * s.ldc + j] = sum_error(s.k, largest) * scale + 0x1p-23 * std::abs(to);
    }
  Array<std::byte> workspace(static_cast<std::size_t>(gemm_fp8_workspace_bytes(build_target())));
  const TestExec exec;
  make_gemm_fp8(s, {dtype_of<A>(), dtype_of<B>(), dtype_of<Out>()})
      ->run(*exec, a.data(), a_scale.data(), b.data(), b_scale.data(), bias.data(), c.data(),
            workspace.data());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double found = static_cast<double>(c[i]);
    ASSERT_LE(std::abs(found - expected[i]), 1.01 * rounding<Out> * std::abs(expected[i]) + error[i])
        << "c[" << i << "] is " << found << ", expected " << expected[i];
  }
}

template <class A, class B, class Out>
void check_products(Fp8Scales scales) {
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1, 16, 16}, {5, 48, 32}, {65, 80, 144}, {96, 128, 320}})
    for (int variant = 0; variant < 8; ++variant) {
      SCOPED_TRACE(::testing::Message() << m << " " << n << " " << k << " variant " << variant);
      GemmFp8Shape s{.m = m, .n = n, .k = k};
      s.scales = scales;
      s.accumulate = variant & 1;
      s.bias = variant & 2;
      if (variant & 4) s.lda = k + 16, s.ldb = k + 32, s.ldc = n + 16;
      check_product<A, B, Out>(s);
    }
}

void check_products(Fp8Scales scales) {
  if (const std::string lack = lack_of_fp8(scales == Fp8Scales::rowwise); !lack.empty()) GTEST_SKIP() << lack;
  check_products<f8e4m3, f8e4m3, bf16>(scales);
  check_products<f8e4m3, f8e4m3, float>(scales);
  check_products<f8e5m2, f8e4m3, bf16>(scales);
  check_products<f8e5m2, f8e4m3, float>(scales);
  check_products<f8e4m3, f8e5m2, float>(scales);
}

TEST(GemmFp8, ProductsOfCodes) {
  check_products(Fp8Scales::tensorwise);
}
TEST(GemmFp8, ProductsOfCodesWithScalesOfRows) {
  check_products(Fp8Scales::rowwise);
}

TEST(GemmFp8, RefusesWhatItCannotDo) {
  const GemmFp8Types types{DType::f8e4m3, DType::f8e4m3, DType::bf16};
  EXPECT_THROW(make_gemm_fp8({.m = 4, .n = 16, .k = 24}, types), Error);
  EXPECT_THROW(make_gemm_fp8({.m = 4, .n = 8, .k = 16}, types), Error);
  EXPECT_THROW(make_gemm_fp8({.m = 0, .n = 16, .k = 16}, types), Error);
  EXPECT_THROW(make_gemm_fp8({.m = 4, .n = 16, .k = 32, .lda = 16}, types), Error);
  EXPECT_THROW(make_gemm_fp8({.m = 4, .n = 16, .k = 16}, {DType::f8e5m2, DType::f8e5m2, DType::bf16}), Error);
  EXPECT_THROW(make_gemm_fp8({.m = 4, .n = 16, .k = 16}, {DType::bf16, DType::f8e4m3, DType::bf16}), Error);
}

/// Weights in one unit, quantised shard by shard through their slots.
class ShardedWeights {
 public:
  ShardedWeights(int shards, bool rowwise)
      : layout_({{"a", {48, 80}, {}, 0},
                 {"b", {16, 16}, {}, 0},
                 {"c", {304, 32}, {}, 0},
                 {"d", {16, 6400}, {}, 0}},
                {{shards}}),
        rowwise_(rowwise) {
    const FlatUnit& unit = layout_.unit(0);
    const auto drawn = random<bf16>(unit.segments.back().begin + unit.segments.back().count, 9);
    flat_.assign(static_cast<std::size_t>(unit.elements()), bf16(0.0F));
    // Sizes grow along the range, so that the largest of a row cut in two may be in either half.
    for (std::size_t i = 0; i < drawn.size(); ++i)
      flat_[i] = bf16(static_cast<float>(drawn[i]) * std::exp2(static_cast<float>(i % 977) / 100));
    codes_.assign(flat_.size(), f8e4m3(0.0F));
  }

  void run() {
    const FlatUnit& unit = layout_.unit(0);
    const std::int64_t stride = 512;
    Array<float> slots(static_cast<std::size_t>(stride * unit.shards), std::nanf(""));
    for (int r = 0; r < unit.shards; ++r) {
      std::int64_t slot = r * stride, bytes = 0;
      std::vector<Fp8Search> searches;
      for (const Piece& p : pieces(r)) {
        searches.push_back({run_of(p), slots.data() + slot});
        slot += searches.back().run.rows();
        bytes += fp8_weight_workspace_bytes(p.count);
      }
      ASSERT_LE(slot, (r + 1) * stride);
      Array<float> partials(static_cast<std::size_t>(bytes / 4 + 1), -1.0F);
      make_fp8_largest(searches, partials.data())(*exec_);
      EXPECT_EQ(partials.back(), -1.0F) << "the workspace is too small";
    }
    std::vector<Fp8Scaling> scalings;
    for (const Segment& s : unit.segments) {
      scales_.emplace_back(static_cast<std::size_t>(s.count / row_of(s)));
      scalings.push_back({slots_of(s, slots.data(), stride), view(scales_.back())});
    }
    make_fp8_scales(scalings)(*exec_);
    for (int r = 0; r < unit.shards; ++r) {
      std::vector<Fp8Encoding> encodings;
      for (const Piece& p : pieces(r))
        encodings.push_back(
            {run_of(p), scales_[static_cast<std::size_t>(p.parameter)].data(), codes_.data() + p.flat_begin});
      make_fp8_encode(encodings)(*exec_);
    }
  }

  void expect_as_if_whole() const {
    for (const Segment& s : layout_.unit(0).segments) {
      const Array<bf16> weight(flat_.begin() + s.begin, flat_.begin() + s.begin + s.count);
      const auto expected =
          reference::fp8_quantize<f8e4m3>(doubles(weight), static_cast<std::size_t>(row_of(s)), 448);
      const Array<f8e4m3> codes(codes_.begin() + s.begin, codes_.begin() + s.begin + s.count);
      const auto& scales = scales_[static_cast<std::size_t>(s.parameter)];
      EXPECT_EQ(doubles(scales), expected.scales) << s.parameter;
      EXPECT_EQ(values_of(codes, scales), expected.values) << s.parameter;
    }
  }

 private:
  std::int64_t row_of(const Segment& s) const {
    return rowwise_ ? layout_.slice_shape(s.parameter)[1] : s.count;
  }
  std::vector<Piece> pieces(std::int64_t r) const {
    const std::int64_t count = layout_.unit(0).shard_elements;
    return layout_.pieces(0, r * count, (r + 1) * count);
  }
  Fp8Run run_of(const Piece& p) const {
    return {{flat_.data() + p.flat_begin, p.count}, p.slice_begin, row_of(layout_.segment_of(p.parameter))};
  }
  Fp8Slots slots_of(const Segment& s, const float* slots, std::int64_t stride) const {
    const std::int64_t shard = layout_.unit(0).shard_elements;
    Fp8Slots at{slots, stride, 0, s.begin, row_of(s), shard};
    for (const Piece& p : pieces(s.begin / shard)) {
      if (p.parameter == s.parameter) break;
      at.first += run_of(p).rows();
    }
    return at;
  }

  TestExec exec_;
  Layout layout_;
  bool rowwise_;
  Array<bf16> flat_;
  Array<f8e4m3> codes_;
  std::vector<Array<float>> scales_;
};

TEST(Fp8Weights, DoNotDependOnShards) {
  for (const int shards : {1, 2, 3, 7, 64, 400})
    for (const bool rowwise : {false, true}) {
      SCOPED_TRACE(::testing::Message() << shards << " shards, rowwise: " << rowwise);
      ShardedWeights weights(shards, rowwise);
      weights.run();
      weights.expect_as_if_whole();
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(Fp8Weights, RefusesWhatIsNotAligned) {
  Array<bf16> weight(64);
  Array<f8e4m3> codes(64);
  Array<float> scales(4);
  const auto encode = [&](std::int64_t from, std::int64_t to, std::int64_t count, std::int64_t row) {
    make_fp8_encode({{{{weight.data() + from, count}, 0, row}, scales.data(), codes.data() + to}});
  };
  EXPECT_NO_THROW(encode(16, 16, 32, 16));
  EXPECT_THROW(encode(1, 0, 32, 16), Error);
  EXPECT_THROW(encode(0, 8, 32, 16), Error);
  EXPECT_THROW(encode(0, 0, 24, 16), Error);
  EXPECT_THROW(encode(0, 0, 32, 8), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_fp8_test
