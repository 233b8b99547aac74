// Attention to keys that come part by part, of queries that are a part too: what ring attention computes,
// against the serial float64 reference of the whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/attention_plain.hpp"
#include "kernels/attention/reference.hpp"
#include "tests/support/attention_case.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_attention_part_test {
namespace {

using namespace ztrain::test;

/// The kernels of the build, and those that take one query at a time.
template <class T>
struct Kernels {
  void (*part)(Exec&, const AttentionInput<T>&, const AttentionSums<acc_t<T>>&, bool);
  void (*backward)(Exec&, const AttentionInput<T>&, Matrix<const T>, Matrix<const acc_t<T>>, Matrix<const T>,
                   const PartGradients<acc_t<T>>&, Vector<std::byte>);
  double unit;
};
template <class T>
Kernels<T> of_build() {
  return {attention_part<T>, attention_part_backward<T>, part_unit()};
}
template <class T>
Kernels<T> plain() {
  return {attention_plain_part<T>, attention_plain_part_backward<T>, plain_part_unit};
}

struct Rows {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// The parts that end here.
std::vector<Rows> parts_of(const std::vector<std::int64_t>& ends) {
  std::vector<Rows> parts;
  for (const std::int64_t end : ends) parts.push_back({parts.empty() ? 0 : parts.back().end, end});
  return parts;
}

template <class T>
class Parts {
  using A = acc_t<T>;

 public:
  Parts(const AttentionCase<T>& c, const std::vector<std::int64_t>& ends, const Kernels<T>& kernels)
      : c_(c), kernels_(kernels), parts_(parts_of(ends)), r_(c) {
    dk_ = dv_ = Array<A>(c.k.size(), poison);
  }

  /// Each part of the queries begins with its own keys, then takes those before and behind it in a circle.
  AttentionRun<T> run() {
    for (std::size_t q = 0; q < parts_.size(); ++q) {
      forward(q);
      backward(q);
    }
    std::ranges::transform(dk_, r_.dk.begin(), [](A x) { return T(x); });
    std::ranges::transform(dv_, r_.dv.begin(), [](A x) { return T(x); });
    return r_;
  }

 private:
  static constexpr A poison = std::numeric_limits<A>::quiet_NaN();
  std::int64_t q_cols() const { return c_.shape.heads * c_.shape.head_dim; }
  std::int64_t kv_cols() const { return c_.shape.kv_heads * c_.shape.head_dim; }

  AttentionInput<T> input(Rows queries, Rows keys) const {
    AttentionShape s = c_.shape;
    s.tokens = queries.count();
    s.keys = keys.count();
    s.first_query = queries.begin - keys.begin;
    s.key_begin = keys.begin;
    return {s,
            {c_.q.data() + queries.begin * q_cols(), s.tokens, q_cols()},
            {c_.k.data() + keys.begin * kv_cols(), s.keys, kv_cols()},
            {c_.v.data() + keys.begin * kv_cols(), s.keys, kv_cols()},
            {c_.start.data() + queries.begin, s.tokens}};
  }
  Rows keys_at(std::size_t q, std::size_t step) const {
    return parts_[(q + parts_.size() - step) % parts_.size()];
  }

  void forward(std::size_t q) {
    const TestExec exec;
    const Rows own = parts_[q];
    const auto rows = static_cast<std::size_t>(own.count() * c_.shape.heads);
    Array<A> out(rows * static_cast<std::size_t>(c_.shape.head_dim), poison), maximum(rows, poison),
        sum(rows, poison);
    const AttentionSums<A> sums{matrix(out, own.count()), matrix(maximum, own.count()),
                                matrix(sum, own.count())};
    for (std::size_t step = 0; step < parts_.size(); ++step) {
      spoil_stack();
      kernels_.part(*exec, input(own, keys_at(q, step)), sums, step > 0);
    }
    attention_merge<T>(*exec, {sums.out, sums.maximum, sums.sum}, o(own), lse(own), kernels_.unit);
  }

  void backward(std::size_t q) {
    const TestExec exec;
    const Rows own = parts_[q];
    Array<A> dq(static_cast<std::size_t>(own.count() * q_cols()), poison);
    Array<std::byte> workspace(
        static_cast<std::size_t>(attention_part_workspace_bytes(own.count(), c_.shape.heads, dtype_of<T>())),
        std::byte{0xff});
    for (std::size_t step = 0; step < parts_.size(); ++step) {
      const Rows keys = keys_at(q, step);
      const auto of_keys = [&](Array<A>& all) {
        return Matrix<A>{all.data() + keys.begin * kv_cols(), keys.count(), kv_cols()};
      };
      spoil_stack();
      kernels_.backward(*exec, input(own, keys), o(own), lse(own),
                        {c_.dout.data() + own.begin * q_cols(), own.count(), q_cols()},
                        {matrix(dq, own.count()), of_keys(dk_), of_keys(dv_), step > 0, q > 0},
                        view(workspace));
    }
    std::ranges::transform(dq, r_.dq.begin() + own.begin * q_cols(), [](A x) { return T(x); });
  }

  Matrix<T> o(Rows own) { return {r_.o.data() + own.begin * q_cols(), own.count(), q_cols()}; }
  Matrix<A> lse(Rows own) {
    return {r_.lse.data() + own.begin * c_.shape.heads, own.count(), c_.shape.heads};
  }

  const AttentionCase<T>& c_;
  Kernels<T> kernels_;
  std::vector<Rows> parts_;
  AttentionRun<T> r_;
  Array<A> dk_, dv_;
};

template <class T>
struct AttentionParts : ::testing::Test {};
TYPED_TEST_SUITE(AttentionParts, FloatTypes);

TYPED_TEST(AttentionParts, GiveTheWhole) {
  using T = TypeParam;
  for (const auto& kernels : {of_build<T>(), plain<T>()})
    for (const std::vector<std::int64_t>& ends : parts_of_queries)
      for (const std::int64_t window : {0, 5, 70})
        for (const std::vector<std::int64_t>& documents : {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}}) {
          const bool wide = window == 70;  // than the smallest tiles
          SCOPED_TRACE(::testing::Message()
                       << ends.back() << " tokens in " << ends.size() << " parts, window " << window << ", "
                       << documents.size() << " documents"
                       << (kernels.unit == plain_part_unit ? ", one query at a time" : ""));
          const AttentionShape s{ends.back(), wide ? 2 : 3, wide ? 1 : 3, wide ? 70 : 7, window};
          for (const AttentionShape& shape : {s, capped(s, 1.5)}) {
            const AttentionCase<T> c(shape, documents);
            expect_reference(c, Parts<T>(c, ends, kernels).run());
          }
          if (this->HasFailure()) return;
        }
}

/// The sums are those of one pass in another order: fp32 parts are as near as fp32 attention is.
TYPED_TEST(AttentionParts, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  for (const auto& kernels : {of_build<T>(), plain<T>()}) {
    AttentionCase<T> c({200, 2, 1, 8}, {});
    for (auto& x : c.q) x = T(static_cast<float>(x) * 300);
    c.q64 = doubles(c.q);
    const auto r = Parts<T>(c, {64, 128, 200}, kernels).run();
    expect_close(r.o, reference::attention(c.input64()).o, 1000 * forward_error<T>, "o");
    for (const auto& x : r.dq) ASSERT_TRUE(std::isfinite(static_cast<double>(x)));
  }
}

TYPED_TEST(AttentionParts, SameBitsEveryTime) {
  const AttentionCase<TypeParam> c({130, 4, 2, 20}, {70});
  const auto run = [&] { return Parts<TypeParam>(c, {64, 130}, of_build<TypeParam>()).run(); };
  expect_same_bits(run(), run());
}

/// Keys that no query sees are not read, and what is summed so far stays as it is: of the future, of another
/// document, outside of the window.
TYPED_TEST(AttentionParts, WhatNoQuerySeesChangesNothing) {
  using T = TypeParam;
  using A = acc_t<T>;
  const std::int64_t tokens = 70;
  const TestExec exec;
  AttentionCase<T> c({tokens, 2, 1, 20}, {});
  const Array<T> nan(c.k.size(), T(std::numeric_limits<float>::quiet_NaN()));
  for (const auto& kernels : {of_build<T>(), plain<T>()})
    for (const auto& [first_query, start, window] :
         {std::array<std::int64_t, 3>{-tokens, 70, 0}, {-300, 300, 0}, {100, 100, 0}, {100, 0, 20}}) {
      SCOPED_TRACE(::testing::Message() << "first query " << first_query << ", window " << window);
      AttentionInput<T> input = c.input();
      input.shape.keys = tokens;
      input.shape.first_query = first_query;
      input.shape.key_begin = first_query < 0 ? -first_query : 0;
      input.shape.window = window;
      const Array<std::int32_t> starts(static_cast<std::size_t>(tokens), static_cast<std::int32_t>(start));
      input.document_start = view(starts);
      input.k = input.v = matrix(nan, tokens);
      Array<A> out(c.q.size(), A(3)), maximum(2 * tokens, A(5)), sum(2 * tokens, A(7));
      const AttentionSums<A> sums{matrix(out, tokens), matrix(maximum, tokens), matrix(sum, tokens)};
      kernels.part(*exec, input, sums, true);
      EXPECT_TRUE(std::ranges::all_of(out, [](A x) { return x == A(3); }));
      EXPECT_TRUE(std::ranges::all_of(maximum, [](A x) { return x == A(5); }));
      EXPECT_TRUE(std::ranges::all_of(sum, [](A x) { return x == A(7); }));
      kernels.part(*exec, input, sums, false);
      EXPECT_TRUE(std::ranges::all_of(out, [](A x) { return x == 0; }));
      EXPECT_TRUE(std::ranges::all_of(sum, [](A x) { return x == 0; }));
      EXPECT_TRUE(std::ranges::all_of(maximum, [](A x) { return std::isfinite(x) && x < A(-1e20); }));
      Array<A> dq(c.q.size(), A(1)), dk(c.k.size(), A(2)), dv(c.k.size(), A(3));
      Array<std::byte> workspace(
          static_cast<std::size_t>(attention_part_workspace_bytes(tokens, 2, dtype_of<T>())));
      const AttentionRun<T> r(c);
      kernels.backward(*exec, input, matrix(r.o, tokens), matrix(r.lse, tokens), matrix(c.dout, tokens),
                       {matrix(dq, tokens), matrix(dk, tokens), matrix(dv, tokens), true, true},
                       view(workspace));
      EXPECT_TRUE(std::ranges::all_of(dq, [](A x) { return x == A(1); }));
      EXPECT_TRUE(std::ranges::all_of(dk, [](A x) { return x == A(2); }));
      EXPECT_TRUE(std::ranges::all_of(dv, [](A x) { return x == A(3); }));
    }
}

TYPED_TEST(AttentionParts, RefusesAShortWorkspaceAndViewsThatDoNotFit) {
  using T = TypeParam;
  using A = acc_t<T>;
  const TestExec exec;
  const AttentionCase<T> c({4, 2, 1, 8}, {});
  AttentionInput<T> input = c.input();
  input.shape.keys = 4;
  const AttentionRun<T> r(c);
  Array<A> dq(c.q.size()), dk(c.k.size()), dv(c.k.size()), maximum(8), sum(8);
  const auto needed = static_cast<std::size_t>(attention_part_workspace_bytes(4, 2, dtype_of<T>()));
  const auto backward = [&](std::size_t bytes, std::int64_t rows) {
    Array<std::byte> workspace(bytes);
    attention_part_backward<T>(*exec, input, matrix(r.o, 4), matrix(r.lse, 4), matrix(c.dout, 4),
                               {matrix(dq, 4), matrix(dk, rows), matrix(dv, 4)}, view(workspace));
  };
  EXPECT_NO_THROW(backward(needed, 4));
  EXPECT_THROW(backward(needed - 1, 4), Error);
  EXPECT_THROW(backward(needed, 2), Error);
  const AttentionSums<A> sums{matrix(dq, 4), matrix(maximum, 4), matrix(sum, 4)};
  EXPECT_NO_THROW(attention_part<T>(*exec, input, sums, false));
  EXPECT_THROW(attention_part<T>(*exec, input, {matrix(dq, 2), sums.maximum, sums.sum}, false), Error);
  input.shape.keys = 0;
  EXPECT_THROW(attention_part<T>(*exec, input, sums, false), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_attention_part_test
