// Kernels that move, convert and make data: embedding, copies and fills, casts, initial weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/init.hpp"
#include "kernels/elementwise/reference.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/embedding/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_light_data_test {
namespace {

using namespace ztrain::test;

template <class Types>
struct DataKernels : ::testing::Test {
  TestExec exec;
};
template <class P>
struct Embedding : DataKernels<P> {};
template <class T>
struct Initial : DataKernels<T> {};
template <class P>
struct Cast : DataKernels<P> {};
using CastPairs =
    ::testing::Types<Pair<float, float>, Pair<float, bf16>, Pair<float, double>, Pair<bf16, float>,
                     Pair<bf16, bf16>, Pair<bf16, double>, Pair<double, float>, Pair<double, bf16>,
                     Pair<double, double>, Pair<float, f16>, Pair<bf16, f16>, Pair<double, f16>,
                     Pair<f16, float>, Pair<f16, bf16>, Pair<f16, f16>, Pair<f16, double>>;
TYPED_TEST_SUITE(Embedding, GradientPairs);
TYPED_TEST_SUITE(Initial, FloatTypes);
TYPED_TEST_SUITE(Cast, CastPairs);

/// Few rows of W, so that tokens repeat.
Array<std::int32_t> repeated_tokens(std::int64_t count, std::int64_t vocabulary) {
  Array<std::int32_t> tokens;
  for (std::int64_t t = 0; t < count; ++t) {
    tokens.push_back(static_cast<std::int32_t>((t * t + 3) % vocabulary));
  }
  return tokens;
}

TYPED_TEST(Embedding, MatchesTheReferenceWithRepeatedTokens) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const std::int64_t vocabulary = 11;
  for (const std::int64_t count : {1, 7, 65, 300}) {
    for (const std::int64_t d : {1, 3, 257, 1000}) {
      const auto tokens = repeated_tokens(count, vocabulary);
      const auto W = random<T>(vocabulary * d, 1), dx = random<T>(count * d, 2);
      const auto before = random<G>(vocabulary * d, 3);
      Array<T> x(dx.size());
      Array<G> fresh = before, added = before;
      embedding_forward<T>(*this->exec, view(tokens), matrix(W, vocabulary), matrix(x, count));
      embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(fresh, vocabulary),
                               false);
      embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(added, vocabulary), true);
      const auto width = static_cast<std::size_t>(d);
      expect_close(x, reference::embedding_forward(tokens, doubles(W), width), 0, "x");
      std::vector<double> expected(fresh.size()), accumulated = doubles(before);
      reference::embedding_backward(tokens, doubles(dx), width, expected);
      reference::embedding_backward(tokens, doubles(dx), width, accumulated);
      // One rounding at each of up to `count` additions of terms of order sqrt(count).
      const double error = rounding<G> * 8 * static_cast<double>(count);
      expect_close(fresh, expected, error, "dW");
      expect_close(added, accumulated, error, "accumulated dW");
      Array<G> again = before;
      embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(again, vocabulary), true);
      EXPECT_TRUE(same_bits(added, again));
    }
  }
}

TYPED_TEST(Embedding, OfSomeRowsOfATableAreThoseOfTheTable) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const std::int64_t vocabulary = 11, d = 257, count = 65, first = 3, rows = 5;
  const auto tokens = repeated_tokens(count, vocabulary);
  const auto W = random<T>(vocabulary * d, 1), dx = random<T>(count * d, 2);
  const Array<T> part(W.begin() + first * d, W.begin() + (first + rows) * d);
  Array<T> x(dx.size() + d, T(7)), whole(dx.size());
  Array<G> dW(static_cast<std::size_t>(rows * d)), dwhole(W.size());
  embedding_forward<T>(*this->exec, view(tokens), matrix(W, vocabulary), matrix(whole, count));
  embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(dwhole, vocabulary), false);
  auto more = tokens;
  more.push_back(static_cast<std::int32_t>(vocabulary));  // of no rank
  embedding_forward<T>(*this->exec, view(more), matrix(part, rows), matrix(x, count + 1),
                       {first, vocabulary});
  embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(dW, rows), false,
                           {first, vocabulary});
  for (std::int64_t t = 0; t < count; ++t) {
    const bool here = tokens[t] >= first && tokens[t] < first + rows;
    for (std::int64_t i = 0; i < d; ++i)
      ASSERT_EQ(static_cast<double>(x[t * d + i]), here ? static_cast<double>(whole[t * d + i]) : 0.0) << t;
  }
  EXPECT_TRUE(std::isnan(static_cast<double>(x[count * d])));
  EXPECT_TRUE(same_bits(dW, Array<G>(dwhole.begin() + first * d, dwhole.begin() + (first + rows) * d)));
}

TYPED_TEST(Embedding, AddsInTokenOrder) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const std::int64_t count = 300, d = 5;
  const Array<std::int32_t> tokens(static_cast<std::size_t>(count), 0);
  const auto dx = random<T>(count * d, 1);
  Array<G> dW(static_cast<std::size_t>(d)), expected(dW.size());
  embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, count), matrix(dW, 1), false);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    auto& sum = expected[i % 5];
    sum = static_cast<G>(static_cast<acc_t<G>>(sum) + static_cast<acc_t<G>>(dx[i]));
  }
  EXPECT_TRUE(same_bits(dW, expected));
}

TYPED_TEST(Embedding, TokensOutsideTheVocabularyAreSeenAndDoNoHarm) {
  using T = typename TypeParam::T;
  using G = typename TypeParam::G;
  const Array<std::int32_t> tokens = {-1, 1, 2};
  const auto W = random<T>(2 * 3, 1), dx = random<T>(3 * 3, 2);
  Array<T> x(dx.size());
  Array<G> dW(W.size());
  embedding_forward<T>(*this->exec, view(tokens), matrix(W, 2), matrix(x, 3));
  embedding_backward<T, G>(*this->exec, view(tokens), matrix(dx, 3), matrix(dW, 2), false);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isnan(static_cast<double>(x[i])), i / 3 != 1) << i;
  }
  for (std::size_t i = 0; i < dW.size(); ++i) {
    EXPECT_EQ(static_cast<double>(dW[i]),
              i < 3 ? 0 : static_cast<double>(static_cast<G>(static_cast<acc_t<T>>(dx[i]))));
  }
}

TYPED_TEST(Initial, EmbeddingOfOneTokenIsTheRowThatTheDeviceNames) {
  using T = TypeParam;
  for (const std::int64_t d : {1, 3, 257, 1000}) {
    const auto x = random<T>(7 * d, 1);
    Array<T> y(static_cast<std::size_t>(d));
    Array<std::int32_t> index = {5};
    embedding_forward<T>(*this->exec, view(std::as_const(index)), matrix(x, 7), matrix(y, 1));
    expect_close(y, reference::embedding_forward(index, doubles(x), static_cast<std::size_t>(d)), 0, "row");
    index[0] = 7;
    embedding_forward<T>(*this->exec, view(std::as_const(index)), matrix(x, 7), matrix(y, 1));
    EXPECT_TRUE(std::isnan(static_cast<double>(y[0])));
  }
}

TYPED_TEST(Initial, SwapBlocksPutsTheInnerDimOutside) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 6, 257})
    for (const auto& [outer, inner] : {std::pair{1, 3}, {5, 2}, {2, 5}, {64, 4}}) {
      const auto x = random<T>(outer * inner * n, 1);
      Array<T> y(x.size()), back(x.size());
      swap_blocks<T>(*this->exec, view(x), outer, inner, view(y));
      expect_close(y,
                   reference::swap_blocks(doubles(x), static_cast<std::size_t>(outer),
                                          static_cast<std::size_t>(inner)),
                   0, "blocks");
      swap_blocks<T>(*this->exec, view(std::as_const(y)), inner, outer, view(back));
      EXPECT_TRUE(same_bits(back, x));
      EXPECT_THROW(swap_blocks<T>(*this->exec, view(x), outer, inner * 3 + 1, view(y)), Error);
    }
}

TYPED_TEST(Initial, CopyZeroAndPoisonTouchExactlyTheirBytes) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 3, 257, 100000}) {
    const auto src = random<T>(n, 1);
    const auto bytes = n * static_cast<std::int64_t>(sizeof(T));
    Array<T> dst(static_cast<std::size_t>(n + 1), static_cast<T>(5.0f));
    copy(*this->exec, src.data(), dst.data(), bytes);
    EXPECT_EQ(std::memcmp(&src[0], &dst[0], static_cast<std::size_t>(bytes)), 0);
    fill_poison(*this->exec, dst.data(), bytes);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(std::isnan(static_cast<double>(dst[static_cast<std::size_t>(i)])));
    }
    zero(*this->exec, dst.data(), bytes);
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(static_cast<double>(dst[static_cast<std::size_t>(i)]), 0);
    EXPECT_EQ(static_cast<double>(dst.back()), 5);
  }
}

TEST(Bytes, AreCopiedAndFilledFromAndToAnyAddress) {
  const TestExec exec;
  Array<char> src(80);
  for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<char>(i + 1);
  for (const std::size_t from : {0, 1, 2, 4, 15})
    for (std::size_t to = 0; to < 17; ++to)
      for (const std::size_t n : {0, 1, 13, 16, 31, 50}) {
        Array<char> dst(80, 'x'), expected = dst, filled = dst, zeros = dst;
        std::copy_n(&src[from], n, &expected[to]);
        copy(*exec, &src[from], &dst[to], static_cast<std::int64_t>(n));
        ASSERT_EQ(dst, expected) << from << " " << to << " " << n;
        std::fill_n(&expected[to], n, '\xff');
        fill_poison(*exec, &filled[to], static_cast<std::int64_t>(n));
        ASSERT_EQ(filled, expected) << to << " " << n;
        std::fill_n(&expected[to], n, '\0');
        zero(*exec, &zeros[to], static_cast<std::int64_t>(n));
        ASSERT_EQ(zeros, expected) << to << " " << n;
      }
}

TEST(Bytes, ArePoisonedByLines) {
  const TestExec exec;
  for (const std::size_t n : {1, 63, 64, 100, 128, 4096, 70000, 200000})
    for (const std::size_t every : {128, 512, 4096}) {
      Array<char> dst(n + 100, 'x'), expected = dst;
      for (std::size_t i = 0; i < n; ++i)
        if (i % every < static_cast<std::size_t>(poison_line)) expected[i] = '\xff';
      fill_poison(*exec, dst.data(), static_cast<std::int64_t>(n), static_cast<std::int64_t>(every));
      ASSERT_EQ(dst, expected) << n << " " << every;
    }
}

/// The value of A rounded to B.
template <class B>
double rounded(double value) {
  return static_cast<double>(static_cast<B>(value));
}

TYPED_TEST(Cast, RoundsEachElementAndDoesNotDependOnTheSlice) {
  using A = typename TypeParam::T;
  using B = typename TypeParam::G;
  for (const std::int64_t n : {1, 3, 257, 1000}) {
    const auto src = random<A>(n, 1, 100);
    Array<B> whole(static_cast<std::size_t>(n)), pieces(whole.size());
    cast<A, B>(*this->exec, view(src), view(whole));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(static_cast<double>(whole[i]), rounded<B>(static_cast<double>(src[i])));
    }
    for (std::int64_t begin = 0; begin < n; begin += 256) {
      const std::int64_t end = std::min(n, begin + 256);
      cast<A, B>(*this->exec, slice(view(src), begin, end), slice(view(pieces), begin, end));
    }
    EXPECT_TRUE(same_bits(whole, pieces));
    for (const std::int64_t shift : {1, 3, 4, 8}) {
      Array<A> moved(static_cast<std::size_t>(shift + n));
      std::copy(src.begin(), src.end(), moved.begin() + shift);
      Array<B> to(moved.size() + 1, static_cast<B>(5.0f));
      cast<A, B>(*this->exec, slice(view(std::as_const(moved)), shift, shift + n),
                 slice(view(to), shift, shift + n));
      EXPECT_TRUE(std::memcmp(&to[static_cast<std::size_t>(shift)], &whole[0], whole.size() * sizeof(B)) ==
                  0);
      EXPECT_EQ(static_cast<double>(to.front()), 5);
      EXPECT_EQ(static_cast<double>(to.back()), 5);
    }
  }
}

TEST(CastSpecial, KeepsNaNInfinityAndTiesToEven) {
  const TestExec exec;
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<float> src = {std::nanf(""), infinity, -infinity, 3.4e38f, 1.00390625f, 1.01171875f, -0.0f};
  Array<bf16> dst(src.size());
  cast<float, bf16>(*exec, view(src), view(dst));
  EXPECT_TRUE(std::isnan(static_cast<float>(dst[0])));
  EXPECT_EQ(dst[1].bits, 0x7f80);
  EXPECT_EQ(dst[2].bits, 0xff80);
  EXPECT_EQ(dst[3].bits, 0x7f80);
  EXPECT_EQ(dst[4].bits, 0x3f80);  // halfway, down to even
  EXPECT_EQ(dst[5].bits, 0x3f82);  // halfway, up to even
  EXPECT_EQ(dst[6].bits, 0x8000);
}

/// Every upper half with the lower halves next to which the rounding changes: denormal numbers, ties,
/// infinity and NaN among them. Processors round to bf16 by themselves, but not all of these alike.
TEST(CastSpecial, Bf16IsRoundedAlikeOnEveryProcessor) {
  Array<float> values;
  for (std::uint32_t upper = 0; upper <= 0xffffu; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  Array<bf16> rounded(values.size());
  cast<float, bf16>(*TestExec(), view(std::as_const(values)), view(rounded));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(rounded[i].bits, bf16::round(values[i])) << std::bit_cast<std::uint32_t>(values[i]);
}

TEST(CastSpecial, Fp16OverflowsToInfinityAndKeepsSubnormals) {
  const TestExec exec;
  const Array<float> src = {std::nanf(""), 65504, 65520, -1e30f, 3 * 0x1p-24f, 0x1p-26f, -0.0f};
  Array<f16> dst(src.size());
  Array<float> back(src.size());
  cast<float, f16>(*exec, view(src), view(dst));
  cast<f16, float>(*exec, view(std::as_const(dst)), view(back));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(back[0]));
  EXPECT_EQ(back[1], 65504);
  EXPECT_EQ(back[2], infinity);
  EXPECT_EQ(back[3], -infinity);
  EXPECT_EQ(back[4], src[4]);
  EXPECT_EQ(back[5], 0);
  EXPECT_EQ(dst[6].bits, 0x8000);
}

TYPED_TEST(Initial, NormalWeightsAreAFunctionOfTheLogicalIndex) {
  using P = TypeParam;
  const std::int64_t n = 1000;
  const std::uint64_t key = 42, stream = 7, begin = 5001;
  Array<P> whole(static_cast<std::size_t>(n)), pieces(whole.size());
  normal_init<P>(*this->exec, view(whole), key, stream, begin, 0.02);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto expected = static_cast<P>(static_cast<float>(0.02 * normal(key, stream, begin + i)));
    ASSERT_EQ(static_cast<double>(whole[i]), static_cast<double>(expected)) << i;
  }
  // Any cut will do here, odd ones too.
  for (const auto& [from, to] :
       {std::pair<std::int64_t, std::int64_t>{0, 256}, {256, 257}, {257, 768}, {768, n}}) {
    normal_init<P>(*this->exec, slice(view(pieces), from, to), key, stream,
                   begin + static_cast<std::uint64_t>(from), 0.02);
  }
  EXPECT_TRUE(same_bits(whole, pieces));
}

TYPED_TEST(Initial, UniformWeightsAreAFunctionOfTheLogicalIndex) {
  using P = TypeParam;
  const std::int64_t n = 1000;
  const std::uint64_t key = 42, stream = 7, begin = 5001;
  Array<P> whole(static_cast<std::size_t>(n)), pieces(whole.size());
  uniform_init<P>(*this->exec, view(whole), key, stream, begin, 0.02);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const double u = uniform(philox(key, stream, (begin + i) / 4)[(begin + i) % 4]);
    const auto expected = static_cast<P>(static_cast<float>(0.02 * (2 * u - 1)));
    ASSERT_EQ(static_cast<double>(whole[i]), static_cast<double>(expected)) << i;
  }
  for (const auto& [from, to] :
       {std::pair<std::int64_t, std::int64_t>{0, 256}, {256, 257}, {257, 768}, {768, n}}) {
    uniform_init<P>(*this->exec, slice(view(pieces), from, to), key, stream,
                    begin + static_cast<std::uint64_t>(from), 0.02);
  }
  EXPECT_TRUE(same_bits(whole, pieces));
}

TYPED_TEST(Initial, NormalWeightsHaveTheirMomentsAndConstantsTheirValue) {
  using P = TypeParam;
  Array<P> weights(200000);
  normal_init<P>(*this->exec, view(weights), 1, 2, 0, 0.5);
  double sum = 0, squares = 0;
  for (const P weight : weights) {
    sum += static_cast<double>(weight);
    squares += static_cast<double>(weight) * static_cast<double>(weight);
  }
  const double n = static_cast<double>(weights.size());
  EXPECT_NEAR(sum / n, 0, 0.005);
  EXPECT_NEAR(squares / n, 0.25, 0.005);
  constant_init<P>(*this->exec, view(weights), 1.5);
  for (const P weight : weights) ASSERT_EQ(static_cast<double>(weight), 1.5);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_light_data_test
