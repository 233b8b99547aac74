// Products by AMX's tiles, against float64, where the processor has them.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/gemm_ways.hpp"
#include "tests/support/product_case.hpp"
#include "tests/support/product_workspace.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_tiles_test {
namespace {

using namespace ztrain::test;

class TileProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!splits_fp32()) GTEST_SKIP() << "no AMX in this processor, this build or this operating system";
  }

  template <class In, class Out>
  void run(ProductCase<In, Out>& p) {
    const GemmShape& s = p.shape;
    const auto gemm = make_gemm_tiles(s, dtype_of<In>(), dtype_of<Out>());
    ASSERT_TRUE(gemm) << s.m << " " << s.n << " " << s.k;
    gemm->run(*exec_, p.a.data(), p.b.data(), p.bias.data(), p.c.data(),
              space_.of(s.m, s.n, s.k, dtype_of<In>(), dtype_of<Out>()));
  }

  template <class In, class Out>
  void check(Size size, int variant) {
    SCOPED_TRACE(::testing::Message() << size.m << " " << size.n << " " << size.k << " variant " << variant);
    GemmShape s = complete({.trans_a = (variant & 1) != 0,
                            .trans_b = (variant & 2) != 0,
                            .m = size.m,
                            .n = size.n,
                            .k = size.k,
                            .accumulate = (variant & 4) != 0,
                            .bias = (variant & 8) != 0});
    if (variant & 16) s.lda += 5, s.ldb += 7, s.ldc += 3;
    ProductCase<In, Out> product(s);
    run(product);
    if (!HasFatalFailure()) product.expect_result(sum_error<In>(s.k + 2));
  }

  template <class In, class Out>
  void check_all() {
    for (const Size size :
         {Size{32, 32, 32}, {33, 65, 47}, {64, 96, 64}, {95, 63, 129}, {40, 1056, 33}, {34, 5, 40}})
      for (int variant = 0; variant < 32 && !HasFatalFailure(); ++variant) check<In, Out>(size, variant);
    // Several pieces of the depth, of which the last is odd.
    for (int variant : {0, 1 | 4, 2 | 8, 1 | 2 | 4 | 8 | 16})
      if (!HasFatalFailure()) check<In, Out>({70, 90, 1601}, variant);
  }

  TestExec exec_;
  ProductWorkspace space_;
};

TEST_F(TileProducts, Fp32) {
  check_all<float, float>();
}
TEST_F(TileProducts, Bf16) {
  check_all<bf16, bf16>();
}
TEST_F(TileProducts, Bf16ToFp32) {
  check_all<bf16, float>();
}

/// More rows than the workspace has sums for.
TEST_F(TileProducts, Bf16OfManyRows) {
  check<bf16, bf16>({9300, 34, 770}, 2);
}

/// Their errors against those of the library's products of fp32, as root mean squares.
TEST_F(TileProducts, Fp32IsAsExactAsTheLibrary) {
  for (const std::int64_t k : {64, 768, 4096}) {
    ProductCase<float, float> p({.trans_b = true, .m = 64, .n = 64, .k = k, .lda = k, .ldb = k, .ldc = 64});
    const auto error_of = [&](Gemm& gemm) {
      gemm.run(*exec_, p.a.data(), p.b.data(), nullptr, p.c.data(),
               space_.of(64, 64, k, DType::f32, DType::f32));
      double sum = 0;
      for (std::size_t i = 0; i < p.expected.size(); ++i)
        sum += std::pow(static_cast<double>(p.c[i]) - p.expected[i], 2);
      return std::sqrt(sum / static_cast<double>(p.expected.size()));
    };
    const double library = error_of(*make_gemm_onednn(p.shape, DType::f32, DType::f32));
    const double split = error_of(*make_gemm_tiles(p.shape, DType::f32, DType::f32));
    RecordProperty("rms_" + std::to_string(k), std::to_string(split / library));
    EXPECT_LT(split, 1.1 * library) << k;
  }
}

/// One number of A times 1: what the three parts of it make together, and what becomes of the ends.
TEST_F(TileProducts, PartsAreTheWholeNumber) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> numbers = {0.1f,         -1.0f / 3,        0x1.fffffep0f, -0x1.fffffep127f,
                                      0x1.ff8p127f, 0x1.fffffep-100f, infinity,      -infinity,
                                      16777215.0f,  0x1p-126f,        -0.0f,         0x1.010102p3f};
  ProductCase<float, float> p(complete({.m = 32, .n = 32, .k = 32}));
  p.a.assign(p.a.size(), 0.0f);
  p.b.assign(p.b.size(), 0.0f);
  for (std::size_t i = 0; i < numbers.size(); ++i) p.a[i * 32] = numbers[i];
  p.a[30 * 32] = std::numeric_limits<float>::quiet_NaN();
  p.b[0] = 1;
  p.b[1] = -1;
  run(p);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(p.c[i * 32], numbers[i]) << i;
    EXPECT_EQ(p.c[i * 32 + 1], -numbers[i]) << i;
  }
  EXPECT_TRUE(std::isnan(p.c[30 * 32]));
  EXPECT_EQ(p.c[31 * 32], 0.0f);
}

/// Of an element's bits: where blocks begin and end makes no difference.
template <class In, class Out>
void expect_same_where_cut(Exec& exec, char* space) {
  const std::int64_t m = 100, n = 1100, k = 1600;
  const auto a = random<In>(m * k, 1), b = random<In>(n * k, 2);
  const auto product = [&](std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols) {
    Array<Out> c(static_cast<std::size_t>(rows * cols), Out(1.0f));
    const GemmShape s = complete({.trans_b = true, .m = rows, .n = cols, .k = k, .accumulate = true});
    make_gemm_tiles(s, dtype_of<In>(), dtype_of<Out>())
        ->run(exec, a.data() + i * k, b.data() + j * k, nullptr, c.data(), space);
    return c;
  };
  const auto whole = product(0, 0, m, n), part = product(37, 510, 41, 70);
  for (std::int64_t i = 0; i < 41; ++i)
    for (std::int64_t j = 0; j < 70; ++j)
      ASSERT_EQ(static_cast<float>(whole[(i + 37) * n + j + 510]), static_cast<float>(part[i * 70 + j]))
          << i << " " << j;
}

TEST_F(TileProducts, BitsDependOnTheDepthAlone) {
  char* const space = space_.of(130, 1100, 1600, DType::bf16, DType::bf16);
  expect_same_where_cut<float, float>(*exec_, space);
  expect_same_where_cut<bf16, float>(*exec_, space);
  expect_same_where_cut<bf16, bf16>(*exec_, space);
}

/// Sums in the workspace behind a block of the right operand that fills its place.
TEST_F(TileProducts, SumsLieBehindTheRightOperand) {
  check<bf16, bf16>({64, 1024, 1536}, 2);
}

/// What lies behind an operand may be no memory: the end of a file that is mapped, or of an arena.
TEST_F(TileProducts, ReadNothingBehindTheirOperands) {
  constexpr std::int64_t m = 33, n = 35, k = 47;
  const std::size_t page = 4096, bytes = 4 * page;
  void* const mapped =
      ::mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const end = reinterpret_cast<float*>(static_cast<std::byte*>(mapped) + bytes);
  ASSERT_EQ(::mprotect(end, page, PROT_NONE), 0);
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      const GemmShape s = complete({.trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k});
      const auto a = random<float>(m * k, 1), b = random<float>(n * k, 2);
      const auto product = [&](const float* left, const float* right) {
        Array<float> c(m * n, 0.0f);
        make_gemm_tiles(s, DType::f32, DType::f32)
            ->run(*exec_, left, right, nullptr, c.data(), space_.of(m, n, k, DType::f32, DType::f32));
        return c;
      };
      const auto expected = product(a.data(), b.data());
      EXPECT_TRUE(same_bits(product(std::copy(a.begin(), a.end(), end - m * k) - m * k, b.data()), expected));
      EXPECT_TRUE(same_bits(product(a.data(), std::copy(b.begin(), b.end(), end - n * k) - n * k), expected));
    }
  ::munmap(mapped, bytes + page);
}

TEST_F(TileProducts, LeavesWhatIsSmallToOthers) {
  EXPECT_FALSE(make_gemm_tiles(complete({.m = 31, .n = 64, .k = 64}), DType::f32, DType::f32));
  EXPECT_FALSE(make_gemm_tiles(complete({.m = 64, .n = 64, .k = 31}), DType::bf16, DType::bf16));
  EXPECT_TRUE(make_gemm_tiles(complete({.m = 64, .n = 1, .k = 64}), DType::bf16, DType::f32));
  EXPECT_FALSE(make_gemm_tiles(complete({.m = 64, .n = 64, .k = 64}), DType::f16, DType::f16));
}

/// Of fp32 where it was asked for, of bf16 where it is native; neither by itself.
TEST_F(TileProducts, AreTakenWhereTheyWereChosen) {
  const auto taken = [&](DType type, std::optional<Bf16Products> bf16, Fp32Products fp32) {
    gemm_library(*exec_).bf16 = bf16;
    gemm_library(*exec_).fp32 = fp32;
    const auto gemm = make_gemm({.m = 64, .n = 64, .k = 64}, type, type);
    gemm->prepare(*exec_);
    return gemm->implementation().find("AMX") != std::string::npos;
  };
  EXPECT_TRUE(taken(DType::bf16, Bf16Products::native, Fp32Products::native));
  EXPECT_FALSE(taken(DType::bf16, Bf16Products::widened, Fp32Products::native));
  EXPECT_TRUE(taken(DType::bf16, Bf16Products::widened, Fp32Products::split));
  EXPECT_TRUE(taken(DType::f16, std::nullopt, Fp32Products::split));
  EXPECT_TRUE(taken(DType::f32, Bf16Products::native, Fp32Products::split));
  EXPECT_FALSE(taken(DType::f32, Bf16Products::native, Fp32Products::native));
}

}  // namespace
}  // namespace ztrain::kernels::kernels_tiles_test
