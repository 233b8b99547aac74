// Attention over a cache, and what fills it, against a serial float64 reference.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_plain.hpp"
#include "kernels/attention/cached/reference.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_attention_cached_test {
namespace {

using namespace ztrain::test;

/// New tokens over a cache whose rows after theirs are garbage that nobody may see.
template <class T>
struct Case {
  AttentionShape shape;
  std::int64_t capacity;
  Array<T> q, k, v;
  std::vector<double> q64, k64, v64;
  Array<std::int32_t> begin;
  Array<T> sinks{};

  Case(const AttentionShape& s, std::int64_t rows, std::int32_t first, std::int64_t w)
      : shape(s),
        capacity(rows),
        q(random<T>(s.tokens * s.heads * s.head_dim, 1, 2)),
        k(random<T>(rows * s.kv_heads * s.head_dim, 2)),
        v(random<T>(rows * s.kv_heads * s.head_dim, 3)),
        begin{first} {
    shape.window = w;
    for (std::int64_t i = 0; i < std::ssize(k); ++i)
      if (i / s.head_dim % rows >= first + s.tokens)
        k[at(i)] = v[at(i)] = T(std::numeric_limits<float>::quiet_NaN());
    q64 = doubles(q);
    k64 = doubles(k);
    v64 = doubles(v);
  }

  template <class U, class V>
  CachedAttentionInput<U> of(const V& a, const V& b, const V& c) const {
    return {shape, matrix(a, shape.tokens), matrix(b, shape.kv_heads * capacity),
            matrix(c, shape.kv_heads * capacity), view(begin)};
  }
  CachedAttentionInput<T> input() const {
    CachedAttentionInput<T> in = of<T>(q, k, v);
    in.sinks = view(sinks);
    return in;
  }
  CachedAttentionInput<double> input64() const { return of<double>(q64, k64, v64); }
};

template <class T>
using Kernel = void (*)(Exec&, const CachedAttentionInput<T>&, Matrix<T>);

/// All that do the same.
template <class T>
constexpr std::array<Kernel<T>, 2> kernels{attention_cached<T>, attention_cached_plain<T>};

template <class T>
Array<T> run(const Case<T>& c, Kernel<T> kernel = attention_cached<T>) {
  const TestExec exec;
  Array<T> o(c.q.size());
  {
    const LaunchAllocations none;
    kernel(*exec, c.input(), matrix(o, c.shape.tokens));
  }
  return o;
}

template <class T>
constexpr double error = std::is_same_v<T, double> ? 1e-13 : 5e-6;

template <class T>
struct CachedAttention : ::testing::Test {};
TYPED_TEST_SUITE(CachedAttention, FloatTypes);

TYPED_TEST(CachedAttention, AgreesWithTheReference) {
  using T = TypeParam;
  const std::vector<AttentionShape> heads = {{0, 1, 1, 8},   {0, 4, 2, 20}, {0, 11, 1, 64},
                                             {0, 8, 2, 128}, {0, 2, 2, 7},  {0, 1, 1, 200}};
  for (const std::int64_t tokens : {1, 4, 5, 67})
    for (const std::int32_t begin : {0, 63, 64, 150})
      for (const std::int64_t window : {0, 1, 70})
        for (AttentionShape s : heads) {
          s.tokens = tokens;
          SCOPED_TRACE(::testing::Message()
                       << tokens << " tokens from " << begin << ", window " << window << ", heads " << s.heads
                       << "/" << s.kv_heads << " of " << s.head_dim);
          for (const auto& [soft_cap, scale] : {std::pair{0.0, 0.0}, {1.5, 0.06}}) {
            s.soft_cap = soft_cap;
            s.scale = scale;
            const Case<T> c(s, begin + tokens + 3, begin, window);
            const auto expected = reference::attention_cached(c.input64());
            for (const auto kernel : kernels<T>) expect_close(run(c, kernel), expected, error<T>, "o");
          }
          if (this->HasFatalFailure()) return;
        }
}

TYPED_TEST(CachedAttention, HasSinks) {
  using T = TypeParam;
  for (const std::int64_t tokens : {1, 67})
    for (const std::int64_t window : {0, 3, 70}) {
      SCOPED_TRACE(::testing::Message() << tokens << " tokens, window " << window);
      Case<T> c({tokens, 6, 2, 20}, 70 + tokens, 66, window);
      c.sinks = random<T>(6, 4, 3);
      c.sinks[0] = static_cast<T>(-200.0f);  // has no part in the softmax
      c.sinks[1] = static_cast<T>(100.0f);   // has nearly all
      const std::vector<double> sinks = doubles(c.sinks);
      CachedAttentionInput<double> in = c.input64();
      in.sinks = {sinks.data(), std::ssize(sinks)};
      const auto expected = reference::attention_cached(in);
      for (const auto kernel : kernels<T>) expect_close(run(c, kernel), expected, error<T>, "o");
    }
}

/// Queries that begin within a block, and that lie in two; a cache that ends within one; layouts with holes.
TYPED_TEST(CachedAttention, HasALayoutOfBlocks) {
  using T = TypeParam;
  const std::vector<std::int64_t> layouts[] = {
      {64, 256, 0b1, 0b11, 0b101, 0b1010}, {128, 256, 0b1, 0b10}, {64, 256, 0b1, 0b10, 0b100, 0b1000}};
  for (const std::vector<std::int64_t>& layout : layouts)
    for (const std::int64_t window : {0, 90})
      for (const auto& [tokens, begin] :
           {std::pair{1, 63}, {1, 64}, {3, 127}, {1, 200}, {130, 100}, {64, 0}}) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens from " << begin << ", blocks of " << layout[0]
                                          << ", window " << window);
        AttentionShape s{tokens, 3, 1, 20};
        s.layout = BlockLayout::of(layout);
        const Case<T> c(s, begin + tokens + 3, begin, window);
        const auto expected = reference::attention_cached(c.input64());
        for (const auto kernel : kernels<T>) expect_close(run(c, kernel), expected, error<T>, "o");
      }
}

TYPED_TEST(CachedAttention, AllocatesNothing) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  for (const auto kernel : kernels<TypeParam>) run(Case<TypeParam>({4, 4, 2, 20}, 9, 5, 0), kernel);
}

TYPED_TEST(CachedAttention, IsAttentionOfTheWholeSequence) {
  using T = TypeParam;
  const AttentionShape s{70, 4, 2, 20};
  const Case<T> c(s, 70, 0, 0);
  const Array<std::int32_t> start(70, 0);
  // There keys and values lie token by token.
  std::vector<double> k(c.k64.size()), v(k.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    const std::size_t d = i % 20, head = i / 20 % 2, token = i / 40, from = (head * 70 + token) * 20 + d;
    k[i] = c.k64[from];
    v[i] = c.v64[from];
  }
  const auto whole = reference::attention(
      {s, c.input64().q, matrix(std::as_const(k), 70), matrix(std::as_const(v), 70), view(start)});
  expect_close(run(c), whole.o, error<T>, "o");
}

/// A cache that ends before the last token's row.
template <class T>
void expect_nan_outside(std::int64_t tokens, Kernel<T> kernel) {
  Case<T> c({tokens, 2, 1, 8}, tokens, 0, 0);
  const auto whole = run(c, kernel);
  c.capacity = tokens - 1;
  c.k.resize(c.k.size() - 8);
  c.v.resize(c.v.size() - 8);
  const auto cut = run(c, kernel);
  const auto own = static_cast<std::size_t>((tokens - 1) * 16);
  EXPECT_TRUE(same_bits(Array<T>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(own)),
                        Array<T>(cut.begin(), cut.begin() + static_cast<std::ptrdiff_t>(own))));
  for (std::size_t i = own; i < cut.size(); ++i) EXPECT_TRUE(std::isnan(static_cast<double>(cut[i])));
  c.begin[0] = -1;
  EXPECT_TRUE(std::isnan(static_cast<double>(run(c, kernel)[0])));
}

TYPED_TEST(CachedAttention, WhatLiesOutsideTheCacheIsNaN) {
  for (const std::int64_t tokens : {3, 70})
    for (const auto kernel : kernels<TypeParam>) expect_nan_outside<TypeParam>(tokens, kernel);
}

TYPED_TEST(CachedAttention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  for (const std::int64_t tokens : {1, 66}) {
    Case<T> c({tokens, 1, 1, 8}, tokens + 70, 70, 0);
    for (auto& x : c.q) x = T(static_cast<float>(x) * 300);
    c.q64 = doubles(c.q);
    for (const auto kernel : kernels<T>)
      expect_close(run(c, kernel), reference::attention_cached(c.input64()), 1000 * error<T>, "o");
  }
}

TYPED_TEST(CachedAttention, AppendedRowsAreWhereTheyBelong) {
  using T = TypeParam;
  const TestExec exec;
  const std::int64_t heads = 2, width = 5, capacity = 8;
  const auto rows = random<T>(3 * heads * width, 1), before = random<T>(heads * capacity * width, 2);
  for (const std::int32_t begin : {0, 2, 5, 6, 8, -1}) {
    Array<T> cache = before, expected = before;
    const Array<std::int32_t> at{begin};
    cache_append<T>(*exec, matrix(rows, 3), view(at), matrix(cache, heads * capacity));
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < width; ++d)
          if (begin + i >= 0 && begin + i < capacity)
            expected[static_cast<std::size_t>((h * capacity + begin + i) * width + d)] =
                rows[static_cast<std::size_t>((i * heads + h) * width + d)];
    EXPECT_TRUE(same_bits(cache, expected)) << "from row " << begin;
  }
}

TEST(CachedAttentionShapes, Refused) {
  const TestExec exec;
  Case<float> c({4, 2, 1, 8}, 9, 2, 0);
  Array<float> o(c.q.size());
  const auto refuses = [&](auto change) {
    auto input = c.input();
    change(input);
    EXPECT_THROW(attention_cached<float>(*exec, input, matrix(o, 4)), Error);
  };
  refuses([](auto& in) { in.shape.kv_heads = 2; });
  refuses([](auto& in) { in.shape.heads = 3; });
  refuses([](auto& in) { in.v.rows = 8; });
  refuses([](auto& in) { in.shape.window = -1; });
  refuses([](auto& in) { in.begin.count = 2; });
  refuses([](auto& in) { in.sinks = {in.q.data, 1}; });
  Array<float> cache(9 * 7);
  EXPECT_THROW(cache_append<float>(*exec, matrix(o, 8), view(c.begin), matrix(cache, 9)), Error);
  EXPECT_THROW(cache_append<float>(*exec, matrix(o, 4), view(c.begin), matrix(cache, 63)), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_attention_cached_test
