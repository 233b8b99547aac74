// Attention against its serial float64 reference, and the reference against finite differences.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.hpp"
#include "base/kernel_workspace.hpp"
#include "kernels/attention.hpp"
#include "kernels/backend.hpp"
#include "kernels/reference/attention.hpp"
#include "telemetry/allocation_count.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::kernels {
namespace {

using namespace ztrain::test;

Array<std::int32_t> starts(std::int64_t tokens, const std::vector<std::int64_t>& lengths) {
  Array<std::int32_t> result;
  std::size_t document = 0;
  while (static_cast<std::int64_t>(result.size()) < tokens) {
    const auto begin = static_cast<std::int32_t>(result.size());
    const std::int64_t left = tokens - begin;
    const std::int64_t length = document < lengths.size() ? std::min(left, lengths[document++]) : left;
    result.insert(result.end(), static_cast<std::size_t>(length), begin);
  }
  return result;
}

/// Inputs of one case, in T and as the same numbers in float64.
template <class T>
struct Case {
  AttentionShape shape;
  double scale;
  Array<T> q, k, v, dout;
  std::vector<double> q64, k64, v64;
  Array<std::int32_t> start;

  Case(const AttentionShape& s, const std::vector<std::int64_t>& documents)
      : shape(s),
        scale(1 / std::sqrt(static_cast<double>(s.head_dim))),
        q(random<T>(s.tokens * s.heads * s.head_dim, 1, 2)),
        k(random<T>(s.tokens * s.kv_heads * s.head_dim, 2)),
        v(random<T>(s.tokens * s.kv_heads * s.head_dim, 3)),
        dout(random<T>(s.tokens * s.heads * s.head_dim, 4)),
        q64(doubles(q)),
        k64(doubles(k)),
        v64(doubles(v)),
        start(starts(s.tokens, documents)) {}

  AttentionInput<T> input() const { return of<T>(q, k, v); }
  AttentionInput<double> input64() const { return of<double>(q64, k64, v64); }

  template <class U, class Values>
  AttentionInput<U> of(const Values& a, const Values& b, const Values& c) const {
    return {shape,      scale, matrix(a, shape.tokens), matrix(b, shape.tokens), matrix(c, shape.tokens),
            view(start)};
  }
};

template <class T>
struct Run {
  Array<T> o, dq, dk, dv;
  Array<acc_t<T>> lse;
};

template <class T>
Run<T> run(const Case<T>& c) {
  const ExecHandle exec = make_exec();
  const AttentionShape& s = c.shape;
  Run<T> r{Array<T>(c.q.size()), Array<T>(c.q.size()), Array<T>(c.k.size()), Array<T>(c.k.size()),
           Array<acc_t<T>>(static_cast<std::size_t>(s.tokens * s.heads))};
  Array<std::byte> workspace(static_cast<std::size_t>(attention_backward_workspace_bytes(
                                 s.tokens, s.heads, s.head_dim, dtype_of<T>())),
                             std::byte{0xff});
  const telemetry::AllocationCount count;
  attention_forward<T>(*exec, c.input(), matrix(r.o, s.tokens), matrix(r.lse, s.tokens));
  attention_backward<T>(*exec, c.input(), matrix(r.o, s.tokens), matrix(r.lse, s.tokens),
                        matrix(c.dout, s.tokens), matrix(r.dq, s.tokens), matrix(r.dk, s.tokens),
                        matrix(r.dv, s.tokens), view(workspace));
  EXPECT_EQ(count.calls(), 0) << "a launch called operator new";
  return r;
}

/// Of outputs of size one. In 16 bits, backward reads the rounded o.
template <class T>
constexpr double forward_error = std::is_same_v<T, double> ? 1e-13 : 5e-6;
template <class T>
constexpr double backward_error = std::is_same_v<T, double>  ? 1e-12
                                  : std::is_same_v<T, float> ? 4e-5
                                  : std::is_same_v<T, f16>   ? 5e-3
                                                             : 4e-2;

template <class T>
void expect_reference(const Case<T>& c) {
  const Run<T> r = run(c);
  const auto expected = reference::attention(c.input64());
  const auto gradients = reference::attention_gradients(c.input64(), doubles(c.dout));
  expect_close(r.o, expected.o, forward_error<T>, "o");
  expect_close(r.lse, expected.lse, forward_error<T>, "lse");
  expect_close(r.dq, gradients.q, backward_error<T>, "dq");
  expect_close(r.dk, gradients.k, 2 * backward_error<T>, "dk");
  expect_close(r.dv, gradients.v, backward_error<T>, "dv");
}

template <class T>
struct Attention : ::testing::Test {};
TYPED_TEST_SUITE(Attention, FloatTypes);

TYPED_TEST(Attention, AgreesWithTheReference) {
  using T = TypeParam;
  const std::vector<AttentionShape> heads = {{0, 1, 1, 8},   {0, 4, 2, 20}, {0, 6, 1, 64},
                                             {0, 2, 1, 128}, {0, 2, 2, 7},  {0, 1, 1, 200}};
  for (const std::int64_t tokens : {1, 3, 64, 65, 130, 200})
    for (AttentionShape s : heads)
      for (const std::vector<std::int64_t>& documents :
           {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}, {65, 64}, {100}}) {
        s.tokens = tokens;
        SCOPED_TRACE(::testing::Message()
                     << tokens << " tokens, heads " << s.heads << "/" << s.kv_heads << " of " << s.head_dim
                     << ", " << documents.size() << " documents");
        expect_reference(Case<T>(s, documents));
        if (this->HasFatalFailure()) return;
      }
}

TYPED_TEST(Attention, WindowsAgreeWithTheReference) {
  using T = TypeParam;
  for (const std::int64_t tokens : {1, 65, 200})
    for (AttentionShape s : {AttentionShape{0, 4, 2, 20}, AttentionShape{0, 1, 1, 7}})
      for (const std::int64_t window : {1, 2, 5, 31, 32, 33, 63, 64, 65, 100, 199, 200, 201, 100000})
        for (const std::vector<std::int64_t>& documents :
             {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}, {65, 64}}) {
          s.tokens = tokens;
          s.window = window;
          SCOPED_TRACE(::testing::Message()
                       << tokens << " tokens, heads " << s.heads << "/" << s.kv_heads << " of " << s.head_dim
                       << ", window " << window << ", " << documents.size() << " documents");
          expect_reference(Case<T>(s, documents));
          if (this->HasFatalFailure()) return;
        }
}

TYPED_TEST(Attention, AWindowAsLongAsTheSequenceChangesNoBit) {
  for (const std::int64_t window : {130, 131, 1 << 30}) {
    const auto without = run(Case<TypeParam>({130, 4, 2, 20}, {70}));
    const auto with = run(Case<TypeParam>({130, 4, 2, 20, window}, {70}));
    EXPECT_TRUE(same_bits(without.o, with.o) && same_bits(without.lse, with.lse));
    EXPECT_TRUE(same_bits(without.dq, with.dq) && same_bits(without.dk, with.dk) &&
                same_bits(without.dv, with.dv));
  }
}

/// Keys before the window are not even read: NaN there reaches nothing.
TYPED_TEST(Attention, BlocksOutsideTheWindowAreSkipped) {
  using T = TypeParam;
  Case<T> c({400, 2, 1, 20, 10}, {});
  const auto before = run(c);
  for (std::int64_t i = 0; i < 100 * 20; ++i) c.k[i] = c.v[i] = T(std::numeric_limits<float>::quiet_NaN());
  const auto after = run(c);
  constexpr std::int64_t first = 100 + 9 + 64;  // blocks of 64 tokens may begin before the window does
  const Array<T> old(before.o.begin() + first * 40, before.o.end()),
      now(after.o.begin() + first * 40, after.o.end());
  EXPECT_TRUE(same_bits(old, now));
  const Array<T> old_dk(before.dk.begin() + 192 * 20, before.dk.end());
  const Array<T> new_dk(after.dk.begin() + 192 * 20, after.dk.end());
  EXPECT_TRUE(same_bits(old_dk, new_dk));
}

TYPED_TEST(Attention, SameBitsEveryTime) {
  const Case<TypeParam> c({130, 4, 2, 20}, {70});
  const auto first = run(c), second = run(c);
  EXPECT_TRUE(same_bits(first.o, second.o) && same_bits(first.lse, second.lse));
  EXPECT_TRUE(same_bits(first.dq, second.dq) && same_bits(first.dk, second.dk) &&
              same_bits(first.dv, second.dv));
}

TYPED_TEST(Attention, ADocumentSeesNothingOfAnother) {
  using T = TypeParam;
  Case<T> c({130, 2, 1, 20}, {70});
  const auto before = run(c);
  for (std::int64_t i = 0; i < 70 * 20; ++i) c.k[i] = c.v[i] = T(1e4f);
  const auto after = run(c);
  const Array<T> old(before.o.begin() + 70 * 40, before.o.end()),
      now(after.o.begin() + 70 * 40, after.o.end());
  EXPECT_TRUE(same_bits(old, now));
  const Array<T> old_dk(before.dk.begin() + 70 * 20, before.dk.end());
  const Array<T> new_dk(after.dk.begin() + 70 * 20, after.dk.end());
  EXPECT_TRUE(same_bits(old_dk, new_dk));
}

TYPED_TEST(Attention, NaNReachesTheOutput) {
  using T = TypeParam;
  Case<T> c({70, 1, 1, 8}, {});
  c.k[8 * 3] = T(std::numeric_limits<float>::quiet_NaN());
  const auto r = run(c);
  EXPECT_FALSE(std::isnan(static_cast<double>(r.o[8 * 2])));
  EXPECT_TRUE(std::isnan(static_cast<double>(r.o[8 * 3])));
  EXPECT_TRUE(std::isnan(static_cast<double>(r.o[8 * 69])));
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  Case<T> c({70, 1, 1, 8}, {});
  for (auto& x : c.q) x = T(static_cast<float>(x) * 300);
  c.q64 = doubles(c.q);
  const auto r = run(c);
  expect_close(r.o, reference::attention(c.input64()).o, 1000 * forward_error<T>, "o");
}

class AttentionReference : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Windows, AttentionReference, ::testing::Values(0, 1, 3, 9));

TEST_P(AttentionReference, GradientsAreFiniteDifferences) {
  Case<double> c({9, 4, 2, 5, GetParam()}, {4});
  const auto gradients = reference::attention_gradients(c.input64(), doubles(c.dout));
  const auto loss = [&] {
    const auto o = reference::attention(c.input64()).o;
    double sum = 0;
    for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * c.dout[i];
    return sum;
  };
  const auto compare = [&](std::vector<double>& x, const std::vector<double>& gradient, const char* name) {
    for (std::size_t i = 0; i < x.size(); i += 7) {
      const double old = x[i], step = 1e-5;
      x[i] = old + step;
      const double up = loss();
      x[i] = old - step;
      const double down = loss();
      x[i] = old;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * step), 1e-8) << name << " " << i;
    }
  };
  compare(c.q64, gradients.q, "q");
  compare(c.k64, gradients.k, "k");
  compare(c.v64, gradients.v, "v");
}

TEST(AttentionShapes, Refused) {
  const ExecHandle exec = make_exec();
  Case<float> c({4, 2, 1, 8}, {});
  Array<float> o(c.q.size()), lse(8);
  auto input = c.input();
  input.shape.kv_heads = 2;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  input = c.input();
  input.shape.window = -1;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  input = c.input();
  input.shape.heads = 3;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
}

}  // namespace
}  // namespace ztrain::kernels
