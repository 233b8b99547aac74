// Attention one query at a time, and prepared attention, against the serial float64 reference.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/attention/attention_plain.hpp"
#include "kernels/attention/attention_prepared.hpp"
#include "kernels/attention/reference.hpp"
#include "tests/support/attention_case.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_attention_plain_test {
namespace {

using namespace ztrain::test;

Array<std::byte> garbage(std::int64_t bytes) {
  return Array<std::byte>(static_cast<std::size_t>(bytes), std::byte{0xff});
}

/// Forward and backward of a case, for run_dense and run_columns.
template <class T>
auto launch_plain(const AttentionCase<T>& c) {
  return [&c](const AttentionPlaces<T>& p, AttentionRun<T>& r) {
    const TestExec exec;
    const AttentionShape& s = c.shape;
    const std::int64_t q_cols = s.heads * s.head_dim, kv_cols = s.kv_heads * s.head_dim;
    auto workspace = garbage(static_cast<std::int64_t>(r.lse.size() * sizeof(acc_t<T>)));
    const LaunchAllocations none;
    attention_plain_forward<T>(*exec, c.input(p), matrix(r.o, s.tokens), matrix(r.lse, s.tokens));
    attention_plain_backward<T>(*exec, c.input(p), matrix(r.o, s.tokens), matrix(r.lse, s.tokens),
                                matrix(c.dout, s.tokens), {p.dq, s.tokens, q_cols}, {p.dk, s.tokens, kv_cols},
                                {p.dv, s.tokens, kv_cols}, view(workspace));
  };
}

/// library: on GPUs it must be cuDNN's.
template <class T>
auto launch_prepared(const AttentionCase<T>& c, bool library = false) {
  return [&c, library](const AttentionPlaces<T>& at, AttentionRun<T>& r) {
    const TestExec exec;
    const DType type = dtype_of<T>();
    const std::int64_t forward_bytes = attention_forward_bytes(at.shape, type, build_target());
    const std::int64_t backward_bytes = attention_backward_bytes(at.shape, type, build_target());
    const auto forward = make_attention(*exec, {Direction::forward, at.shape, type, forward_bytes});
    const auto backward = make_attention(*exec, {Direction::backward, at.shape, type, backward_bytes});
    auto forward_workspace = garbage(forward_bytes), backward_workspace = garbage(backward_bytes);
    AttentionOperands p{at.q,  at.k,  at.v,  c.start.data(),          r.o.data(), r.lse.data(), c.dout.data(),
                        at.dq, at.dk, at.dv, forward_workspace.data()};
    forward->run(*exec, p);
    p.workspace = backward_workspace.data();
    backward->run(*exec, p);
    for (const auto& prepared : {forward.get(), backward.get()}) {
      EXPECT_FALSE(prepared->describe().empty());
      if (!library || test_gpu() == 0) continue;
      EXPECT_TRUE(prepared->describe().starts_with("cuDNN, ")) << prepared->describe();
      EXPECT_FALSE(prepared->slow());
    }
  };
}

template <class T>
AttentionRun<T> run_plain(const AttentionCase<T>& c) {
  return run_dense(c, launch_plain(c));
}
template <class T>
AttentionRun<T> run_prepared(const AttentionCase<T>& c) {
  return run_dense(c, launch_prepared(c));
}

template <class T>
struct PlainAttention : ::testing::Test {};
TYPED_TEST_SUITE(PlainAttention, FloatTypes);

/// Heads of each width meet each number of tokens, window, cut into documents, cap and scale.
TYPED_TEST(PlainAttention, AgreesWithTheReference) {
  using T = TypeParam;
  for (const std::vector<int>& row : rows_of({12, 3, 4, 2, 3})) {
    const auto level = [&row](std::size_t factor, const auto& levels) {
      return levels.at(static_cast<std::size_t>(row[factor]));
    };
    const std::int64_t head_dim = level(0, std::array{1, 7, 8, 20, 33, 64, 65, 100, 128, 129, 200, 256});
    AttentionShape s{level(1, std::array{1, 3, 65}), head_dim < 64 ? 6 : 2, head_dim < 64 ? 2 : 1, head_dim,
                     level(2, std::array{0, 1, 5, 64})};
    const auto [cap, scale] =
        level(4, std::array<std::pair<double, double>, 3>{{{0, 0}, {1.5, 0}, {0, 0.06}}});
    s = capped(s, cap, scale);
    const auto documents = row[3] == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1, 2, 30};
    SCOPED_TRACE(::testing::Message()
                 << s.tokens << " tokens, heads of " << head_dim << ", window " << s.window << ", "
                 << documents.size() << " documents, cap " << cap << ", scale " << scale);
    const AttentionCase<T> c(s, documents);
    // Heads of one element have large scores, which magnify the rounding of o that backward reads.
    expect_reference(c, run_plain(c), forward_error<T>, (head_dim < 7 ? 2 : 1) * backward_error<T>);
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(PlainAttention, PartsOfTheQueriesGiveTheWhole) {
  using T = TypeParam;
  for (const std::vector<std::int64_t>& ends : parts_of_queries)
    for (const std::int64_t window : {0, 5}) {
      const AttentionCase<T> c({ends.back(), 4, 2, 20, window}, {1, 2, 30, 40});
      expect_reference(c, run_parts(c, ends, [](const AttentionPart<T>& part) {
                         const TestExec exec;
                         auto workspace = garbage(part.lse.rows * part.lse.cols * sizeof(acc_t<T>));
                         attention_plain_forward<T>(*exec, part.input, part.o, part.lse);
                         attention_plain_backward<T>(*exec, part.input, part.o, part.lse, part.dout, part.dq,
                                                     part.dk, part.dv, view(workspace));
                       }));
      if (this->HasFailure()) return;
    }
}

TYPED_TEST(PlainAttention, AllocatesNothing) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  run_plain(AttentionCase<TypeParam>({130, 4, 2, 20}, {70}));
}

TYPED_TEST(PlainAttention, SameBitsEveryTime) {
  const AttentionCase<TypeParam> c({130, 4, 2, 20}, {70});
  expect_same_bits(run_plain(c), run_plain(c));
}

TYPED_TEST(PlainAttention, ColumnsOfOneMatrixGiveTheSameBits) {
  using T = TypeParam;
  for (const std::vector<int>& row : rows_of({4, 2, 2, 2})) {
    const std::int64_t head_dim = std::array{7, 64, 100, 200}.at(static_cast<std::size_t>(row[0]));
    const std::int64_t window = row[1] == 0 ? 0 : 5, pad = row[2] == 0 ? 0 : 3;
    const auto documents = row[3] == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{1, 2, 30};
    SCOPED_TRACE(::testing::Message() << "heads of " << head_dim << ", window " << window << ", pad " << pad
                                      << ", " << documents.size() << " documents");
    const AttentionCase<T> c({65, 4, 2, head_dim, window}, documents);
    expect_same_bits(run_columns(c, pad, launch_plain(c)), run_plain(c));
    if (this->HasFailure()) return;
  }
}

/// Neither its own keys' results nor their gradients change with another document's.
TYPED_TEST(PlainAttention, ADocumentSeesNothingOfAnother) {
  using T = TypeParam;
  AttentionCase<T> c({130, 2, 1, 20}, {70});
  const auto before = run_plain(c);
  for (std::size_t i = 0; i < 70 * 20; ++i) c.k[i] = c.v[i] = T(1e4f);
  for (std::size_t i = 0; i < 70 * 40; ++i) c.q[i] = c.dout[i] = T(3.0f);
  const auto after = run_plain(c);
  const auto rest = [](const auto& x, std::ptrdiff_t from) {
    return std::decay_t<decltype(x)>(x.begin() + from, x.end());
  };
  EXPECT_TRUE(same_bits(rest(before.o, 70 * 40), rest(after.o, 70 * 40)));
  EXPECT_TRUE(same_bits(rest(before.dq, 70 * 40), rest(after.dq, 70 * 40)));
  EXPECT_TRUE(same_bits(rest(before.dk, 70 * 20), rest(after.dk, 70 * 20)));
  EXPECT_TRUE(same_bits(rest(before.dv, 70 * 20), rest(after.dv, 70 * 20)));
}

TYPED_TEST(PlainAttention, RefusesAShortWorkspace) {
  using T = TypeParam;
  const TestExec exec;
  const AttentionCase<T> c({4, 2, 1, 8}, {});
  AttentionRun<T> r(c);
  auto workspace = garbage(static_cast<std::int64_t>(8 * sizeof(acc_t<T>)) - 1);
  EXPECT_THROW(
      attention_plain_backward<T>(*exec, c.input(), matrix(r.o, 4), matrix(r.lse, 4), matrix(c.dout, 4),
                                  matrix(r.dq, 4), matrix(r.dk, 4), matrix(r.dv, 4), view(workspace)),
      Error);
}

/// A library's: probabilities are rounded to T before they meet the values.
template <class T>
constexpr double library_error = std::is_same_v<T, bf16>  ? 4e-2
                                 : std::is_same_v<T, f16> ? 5e-3
                                                          : 4e-5;

template <class T>
struct PreparedAttentionTest : ::testing::Test {};
TYPED_TEST_SUITE(PreparedAttentionTest, FloatTypes);

/// Micro-batches of two sequences: one document each, several, with and without a bound on their number.
TYPED_TEST(PreparedAttentionTest, AgreesWithTheReference) {
  using T = TypeParam;
  const bool library = build_target() == Target::cuda && sizeof(T) == 2;
  const double forward = library ? library_error<T> : forward_error<T>;
  const double backward = library ? 2 * library_error<T> : backward_error<T>;
  for (const std::vector<int>& row : rows_of({3, 2, 2, 2})) {
    const std::int32_t documents = std::array{2, 8, 0}.at(static_cast<std::size_t>(row[0]));
    const std::int64_t head_dim = row[1] == 0 ? 64 : 128, window = row[2] == 0 ? 0 : 40;
    const bool deterministic = row[3] == 0;
    SCOPED_TRACE(::testing::Message() << "heads of " << head_dim << ", window " << window << ", documents "
                                      << documents << (deterministic ? " in order" : ""));
    AttentionShape s{256, 4, 2, head_dim, window, 0, 128, documents, deterministic};
    if (window > 0) s.scale = 0.06;
    const AttentionCase<T> c(
        s, documents == 2 ? std::vector<std::int64_t>{128} : std::vector<std::int64_t>{50, 1, 77, 100});
    const AttentionRun<T> r = run_prepared(c);
    expect_reference(c, r, forward, backward);
    if (deterministic) expect_same_bits(r, run_prepared(c));
    const AttentionRun<T> columns = run_columns(c, 8, launch_prepared(c));
    if (library) {  // which may take another of its kernels
      expect_reference(c, columns, forward, backward);
    } else {
      expect_same_bits(r, columns);
    }
    if (this->HasFailure()) return;
  }
}

template <class T>
struct LongAttention : ::testing::Test {};
using Halves = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(LongAttention, Halves);

/// Sequences as training has them, one of a length that no tile divides, whole and of packed documents.
TYPED_TEST(LongAttention, IsTheLibrarysAndAgreesWithTheReference) {
  using T = TypeParam;
  const bool library = build_target() == Target::cuda;
  for (const std::int64_t sequence : {1000, 2048})
    for (const std::int32_t documents : {1, 8}) {
      if (!library && sequence > 1000) continue;  // our own kernels know no other cases there
      SCOPED_TRACE(::testing::Message() << sequence << " tokens, at most " << documents << " documents");
      const AttentionShape s{sequence, 2, 1, 64, 0, 0, sequence, documents, false};
      const AttentionCase<T> c(
          s, documents == 1 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{50, 1, 77, 300});
      expect_reference(c, run_dense(c, launch_prepared(c, true)), library_error<T>, 2 * library_error<T>);
    }
}

/// Which no library does: our own kernels take the place.
TYPED_TEST(PreparedAttentionTest, CapsScores) {
  using T = TypeParam;
  const AttentionShape s = capped({256, 4, 2, 64, 40, 0, 128, 2, false}, 1.5);
  const AttentionCase<T> c(s, {128});
  expect_reference(c, run_prepared(c));
}

TEST(PreparedAttentionTypes, Refused) {
  const TestExec exec;
  EXPECT_THROW(make_attention(*exec, {Direction::forward, {4, 2, 1, 8}, DType::i32, 0}), Error);
}

}  // namespace
}  // namespace ztrain::kernels::kernels_attention_plain_test
