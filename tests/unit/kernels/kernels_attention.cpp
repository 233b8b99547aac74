// Attention against its serial float64 reference, and the reference against finite differences.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/reference.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/half_unit_cpu.hpp"
#include "tests/support/attention_case.hpp"
#include "tests/support/launch_allocations.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_attention_test {
namespace {

using namespace ztrain::test;

/// Forward and backward of a case, for run_dense and run_columns.
template <class T>
auto launch(const AttentionCase<T>& c) {
  return [&c](const AttentionPlaces<T>& p, AttentionRun<T>& r) {
    const TestExec exec;
    const AttentionShape& s = c.shape;
    const std::int64_t q_cols = s.heads * s.head_dim, kv_cols = s.kv_heads * s.head_dim;
    Array<std::byte> workspace(static_cast<std::size_t>(attention_backward_workspace_bytes(
                                   s.tokens, s.heads, s.head_dim, dtype_of<T>())),
                               std::byte{0xff});
    const LaunchAllocations none;
    spoil_stack();
    attention_forward<T>(*exec, c.input(p), matrix(r.o, s.tokens), matrix(r.lse, s.tokens));
    spoil_stack();
    attention_backward<T>(*exec, c.input(p), matrix(r.o, s.tokens), matrix(r.lse, s.tokens),
                          matrix(c.dout, s.tokens), {p.dq, s.tokens, q_cols}, {p.dk, s.tokens, kv_cols},
                          {p.dv, s.tokens, kv_cols}, view(workspace));
  };
}

template <class T>
AttentionRun<T> run(const AttentionCase<T>& c) {
  return run_dense(c, launch(c));
}

template <class T>
struct Attention : ::testing::Test {};
TYPED_TEST_SUITE(Attention, FloatTypes);

TYPED_TEST(Attention, AgreesWithTheReference) {
  using T = TypeParam;
  const std::vector<AttentionShape> heads = {{0, 1, 1, 8}, {0, 4, 2, 20},  {0, 6, 1, 64}, {0, 2, 1, 128},
                                             {0, 2, 2, 7}, {0, 1, 1, 200}, {0, 1, 1, 33}};
  for (const std::int64_t tokens : {1, 3, 64, 65, 130, 200})
    for (AttentionShape s : heads)
      for (const std::vector<std::int64_t>& documents :
           {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}, {65, 64}, {100}}) {
        s.tokens = tokens;
        SCOPED_TRACE(::testing::Message()
                     << tokens << " tokens, heads " << s.heads << "/" << s.kv_heads << " of " << s.head_dim
                     << ", " << documents.size() << " documents");
        const AttentionCase<T> c(s, documents);
        expect_reference(c, run(c));
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
          const AttentionCase<T> c(s, documents);
          expect_reference(c, run(c));
          if (this->HasFatalFailure()) return;
        }
}

/// Caps from where most scores are cut to where hardly any is, and other scales.
TYPED_TEST(Attention, CapsAndScalesAgreeWithTheReference) {
  using T = TypeParam;
  for (const AttentionShape& heads : {AttentionShape{65, 4, 2, 20}, AttentionShape{200, 1, 1, 7, 40},
                                      AttentionShape{130, 2, 1, 128}, AttentionShape{70, 1, 1, 200}})
    for (const double soft_cap : {0.0, 1.0, 4.0, 50.0})
      for (const double scale : {0.0, 0.02, 0.06}) {
        SCOPED_TRACE(::testing::Message() << heads.tokens << " tokens, heads of " << heads.head_dim
                                          << ", cap " << soft_cap << ", scale " << scale);
        const AttentionCase<T> c(capped(heads, soft_cap, scale), {1, 2, 30});
        expect_reference(c, run(c));
        if (this->HasFailure()) return;
      }
}

TYPED_TEST(Attention, PartsOfTheQueriesGiveTheWhole) {
  using T = TypeParam;
  for (const AttentionShape& heads : {AttentionShape{0, 4, 2, 20}, AttentionShape{0, 3, 3, 7}})
    for (const std::vector<std::int64_t>& ends : parts_of_queries)
      for (const std::int64_t window : {0, 5, 70})
        for (const std::vector<std::int64_t>& documents :
             {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}, {100}}) {
          AttentionShape s = heads;
          s.tokens = ends.back();
          s.window = window;
          SCOPED_TRACE(::testing::Message() << s.tokens << " tokens in " << ends.size() << " parts, window "
                                            << window << ", " << documents.size() << " documents");
          const AttentionCase<T> c(s, documents);
          expect_reference(c, run_parts(c, ends, [](const AttentionPart<T>& part) {
                             const TestExec exec;
                             Array<std::byte> workspace(
                                 static_cast<std::size_t>(attention_backward_workspace_bytes(
                                     part.input.shape.tokens, part.input.shape.heads,
                                     part.input.shape.head_dim, dtype_of<T>())),
                                 std::byte{0xff});
                             attention_forward<T>(*exec, part.input, part.o, part.lse);
                             attention_backward<T>(*exec, part.input, part.o, part.lse, part.dout, part.dq,
                                                   part.dk, part.dv, view(workspace));
                           }));
          if (this->HasFailure()) return;
        }
}

TYPED_TEST(Attention, AWindowAsLongAsTheSequenceChangesNoBit) {
  for (const std::int64_t window : {130, 131, 1 << 30}) {
    const auto without = run(AttentionCase<TypeParam>({130, 4, 2, 20}, {70}));
    const auto with = run(AttentionCase<TypeParam>({130, 4, 2, 20, window}, {70}));
    expect_same_bits(without, with);
  }
}

/// Keys before the window are not even read: NaN there reaches nothing.
TYPED_TEST(Attention, BlocksOutsideTheWindowAreSkipped) {
  using T = TypeParam;
  AttentionCase<T> c({400, 2, 1, 20, 10}, {});
  const auto before = run(c);
  for (std::int64_t i = 0; i < 100 * 20; ++i) c.k[i] = c.v[i] = T(std::numeric_limits<float>::quiet_NaN());
  const auto after = run(c);
  // Blocks of 64 tokens may begin before the window does, and those of the processor's products are taken
  // whole.
  const std::int64_t first = native_products() ? 192 : 100 + 9 + 64;
  const Array<T> old(before.o.begin() + first * 40, before.o.end()),
      now(after.o.begin() + first * 40, after.o.end());
  EXPECT_TRUE(same_bits(old, now));
  const Array<T> old_dk(before.dk.begin() + 192 * 20, before.dk.end());
  const Array<T> new_dk(after.dk.begin() + 192 * 20, after.dk.end());
  EXPECT_TRUE(same_bits(old_dk, new_dk));
}

/// Two sequences of a layout, whose documents end within blocks or with the sequence: layouts with holes,
/// one with a window, one that lacks all but the diagonal, and one whose blocks are two tiles.
TYPED_TEST(Attention, LayoutsOfBlocksAgreeWithTheReference) {
  using T = TypeParam;
  struct Row {
    AttentionShape heads;
    std::vector<std::int64_t> layout, documents;
  };
  const Row rows[] = {{{0, 2, 1, 20}, {64, 256, 0b1, 0b11, 0b101, 0b1010}, {256}},
                      {capped({0, 2, 1, 7}, 4), {64, 256, 0b1, 0b10, 0b110, 0b1001}, {256, 70, 2, 100}},
                      {{0, 2, 1, 20, 90}, {64, 256, 0b1, 0b11, 0b111, 0b1011}, {256, 70}},
                      {{0, 1, 1, 64}, {64, 192, 0b1, 0b10, 0b100}, {100, 92}},
                      {{0, 1, 1, 8}, {128, 384, 0b1, 0b10, 0b101}, {384}}};
  for (const Row& row : rows) {
    AttentionShape s = row.heads;
    s.tokens = 2 * row.layout[1];
    s.layout = BlockLayout::of(row.layout);
    SCOPED_TRACE(::testing::Message() << "heads of " << s.head_dim << ", blocks of " << row.layout[0]);
    const AttentionCase<T> c(s, row.documents);
    expect_reference(c, run(c));
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(Attention, ALayoutOfAllBlocksChangesNoBit) {
  const std::vector<std::int64_t> layout{64, 256, 0b1, 0b11, 0b111, 0b1111};
  AttentionShape s{256, 4, 2, 20};
  const auto without = run(AttentionCase<TypeParam>(s, {70}));
  s.layout = BlockLayout::of(layout);
  expect_same_bits(without, run(AttentionCase<TypeParam>(s, {70})));
}

TYPED_TEST(Attention, AllocatesNothing) {
  if (test_gpu() > 0) GTEST_SKIP() << kokkos_allocates;
  run(AttentionCase<TypeParam>({130, 4, 2, 20}, {70}));
}

TYPED_TEST(Attention, SameBitsEveryTime) {
  const AttentionCase<TypeParam> c({130, 4, 2, 20}, {70});
  expect_same_bits(run(c), run(c));
}

TYPED_TEST(Attention, ColumnsOfOneMatrixGiveTheSameBits) {
  using T = TypeParam;
  for (AttentionShape s : {AttentionShape{0, 4, 2, 20}, AttentionShape{0, 3, 3, 64},
                           AttentionShape{0, 6, 1, 100}, AttentionShape{0, 1, 1, 200}})
    for (const std::int64_t tokens : {1, 65, 200})
      for (const std::int64_t window : {0, 40})
        for (const std::int64_t pad : {0, 5})
          for (const std::vector<std::int64_t>& documents :
               {std::vector<std::int64_t>{}, {1, 2, 30, 40, 64}}) {
            s.tokens = tokens;
            s.window = window;
            SCOPED_TRACE(::testing::Message() << tokens << " tokens, heads " << s.heads << "/" << s.kv_heads
                                              << " of " << s.head_dim << ", window " << window << ", pad "
                                              << pad << ", " << documents.size() << " documents");
            const AttentionCase<T> c(s, documents);
            expect_same_bits(run_columns(c, pad, launch(c)), run(c));
            if (this->HasFailure()) return;
          }
}

TYPED_TEST(Attention, ADocumentSeesNothingOfAnother) {
  using T = TypeParam;
  AttentionCase<T> c({130, 2, 1, 20}, {70});
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

#ifdef ZTRAIN_HALF_TILES
/// Probabilities that were rounded give other bits than those in fp32: that the processor's products are
/// taken where they are chosen, and nowhere else.
TYPED_TEST(Attention, NativeProductsAreUsedWhereChosen) {
  using T = TypeParam;
  const bool expected = native_products() && multiplies_bf16() && std::is_same_v<T, bf16>;
  const AttentionCase<T> c({130, 4, 2, 20}, {});
  const auto native = run(c);
  AttentionRun<T> wide(c);
  const TestExec exec;
  gemm_library(*exec).bf16 = Bf16Products::widened;
  Array<std::byte> workspace(
      static_cast<std::size_t>(attention_backward_workspace_bytes(130, 4, 20, dtype_of<T>())));
  attention_forward<T>(*exec, c.input(), matrix(wide.o, 130), matrix(wide.lse, 130));
  EXPECT_EQ(same_bits(wide.o, native.o), !expected);
  attention_backward<T>(*exec, c.input(), matrix(native.o, 130), matrix(native.lse, 130), matrix(c.dout, 130),
                        {wide.dq.data(), 130, 80}, {wide.dk.data(), 130, 40}, {wide.dv.data(), 130, 40},
                        view(workspace));
  EXPECT_EQ(same_bits(wide.dv, native.dv), !expected);
}

/// AMX where the processor has it and the library may use it, else vectors.
TEST(HalfUnit, IsTheProcessors) {
  const TestExec exec;
  gemm_library(*exec).bf16 = Bf16Products::widened;
  EXPECT_FALSE(half_unit(*exec));
  if (!multiplies_bf16()) GTEST_SKIP() << "no products of bf16";
  gemm_library(*exec).bf16 = Bf16Products::native;
  std::ifstream file("/proc/cpuinfo");
  const std::string processor{std::istreambuf_iterator<char>(file), {}};
  const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
  const bool may_use = most == nullptr || std::string(most) == "ALL";
  const bool tiles = may_use && processor.find(" amx_bf16") != std::string::npos;
  EXPECT_EQ(half_unit(*exec), tiles ? half::Unit::tiles : half::Unit::vectors);
}
#endif

/// Far above what exponentials have; fp16 has no such numbers.
TYPED_TEST(Attention, HugeScoresGiveFiniteGradients) {
  using T = TypeParam;
  if (std::is_same_v<T, f16>) GTEST_SKIP();
  AttentionCase<T> c({70, 1, 1, 8}, {});
  for (auto& x : c.q) x = T(static_cast<float>(x) * 3e12f);
  const auto r = run(c);
  for (const auto& x : r.dv) ASSERT_LT(std::abs(static_cast<double>(x)), 1000);
  for (const auto& x : r.dq) ASSERT_TRUE(std::isfinite(static_cast<double>(x)));
}

/// At a key of the same block as the next document.
TYPED_TEST(Attention, NaNOfADocumentStaysThere) {
  using T = TypeParam;
  AttentionCase<T> c({72, 1, 1, 8}, {64, 8});
  c.k[8 * 20] = T(std::numeric_limits<float>::quiet_NaN());
  const auto r = run(c);
  EXPECT_TRUE(std::isnan(static_cast<double>(r.o[8 * 20])));
  for (std::size_t i = 8 * 64; i < r.o.size(); ++i)
    EXPECT_FALSE(std::isnan(static_cast<double>(r.o[i]))) << i;
}

TYPED_TEST(Attention, NaNReachesTheOutput) {
  using T = TypeParam;
  AttentionCase<T> c({70, 1, 1, 8}, {});
  c.k[8 * 3] = T(std::numeric_limits<float>::quiet_NaN());
  const auto r = run(c);
  EXPECT_FALSE(std::isnan(static_cast<double>(r.o[8 * 2])));
  EXPECT_TRUE(std::isnan(static_cast<double>(r.o[8 * 3])));
  EXPECT_TRUE(std::isnan(static_cast<double>(r.o[8 * 69])));
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  AttentionCase<T> c({70, 1, 1, 8}, {});
  for (auto& x : c.q) x = T(static_cast<float>(x) * 300);
  c.q64 = doubles(c.q);
  const auto r = run(c);
  expect_close(r.o, reference::attention(c.input64()).o, 1000 * forward_error<T>, "o");
}

class AttentionReference : public ::testing::TestWithParam<AttentionShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionReference,
                         ::testing::Values(AttentionShape{9, 4, 2, 5}, AttentionShape{9, 4, 2, 5, 1},
                                           AttentionShape{9, 4, 2, 5, 3}, AttentionShape{9, 4, 2, 5, 9},
                                           capped({9, 4, 2, 5}, 0.7), capped({9, 4, 2, 5, 3}, 3, 0.8)));

TEST_P(AttentionReference, GradientsAreFiniteDifferences) {
  AttentionCase<double> c(GetParam(), {4});
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
  const TestExec exec;
  AttentionCase<float> c({4, 2, 1, 8}, {});
  Array<float> o(c.q.size()), lse(8);
  auto input = c.input();
  input.shape.kv_heads = 2;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  input = c.input();
  input.shape.window = -1;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  for (const AttentionShape& shape : {capped(c.shape, -1), capped(c.shape, 0, -1)}) {
    input.shape = shape;
    EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  }
  input = c.input();
  input.shape.heads = 3;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  input = c.input();
  input.shape.keys = 5;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  input = c.input();
  input.shape.first_query = 1;
  EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error);
  for (const std::int64_t row : {-16, 8, 15}) {
    input = c.input();
    input.shape.row = row;
    EXPECT_THROW(attention_forward<float>(*exec, input, matrix(o, 4), matrix(lse, 4)), Error) << row;
  }
}

}  // namespace
}  // namespace ztrain::kernels::kernels_attention_test
