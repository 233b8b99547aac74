// Products of the sizes that models have, whatever the processor: which kernel does them, and their numbers
// at chosen places against float64. CTest runs this for several values of ONEDNN_MAX_CPU_ISA as well.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/gemm_library.hpp"
#include "kernels/linear/linear.hpp"
#include "tests/support/kernel_arrays.hpp"
#include "tests/support/test_exec.hpp"

namespace ztrain::kernels::kernels_products_test {
namespace {

using namespace ztrain::test;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Layers of models of 100M to 1B parameters, the largest with joined gate and up; fewer tokens than a run
/// has, and no multiples of the panels that kernels cut them into.
const std::vector<LinearShape> layers = {
    {520, 768, 2304}, {1030, 1100, 768}, {72, 2048, 16384}, {72, 8192, 2048}};

/// Numbers from -1/2 to 1/2 from a linear congruence: the arrays here are too large for better ones.
template <class T>
Array<T> numbers(std::int64_t count, std::uint32_t seed) {
  Array<T> all(static_cast<std::size_t>(count));
  std::uint32_t state = seed;
  for (T& x : all) {
    state = state * 1664525u + 1013904223u;
    x = T(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
  }
  return all;
}

/// A way of forming the products of one type, and a part of the name that its kernel must have.
struct Way {
  std::optional<Bf16Products> bf16;
  std::string name;
  Fp32Products fp32 = Fp32Products::native;
};

/// What this processor is to take for fp32, and for 16-bit types where it does not multiply them.
std::string library_name() {
#if defined(__x86_64__)
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string isa = most ? most : "";
  if (isa == "AVX2" || !__builtin_cpu_supports("avx512bw")) return "oneDNN gemm:jit, avx2";
  if (isa == "AVX512_CORE") return "oneDNN gemm:jit, avx512_core";
  return "oneDNN gemm:jit";
#else
  return "";  // The library has no kernels of its own everywhere.
#endif
}

template <class T>
std::vector<Way> ways() {
  const std::string panels = " through fp32 panels, " + library_name();
  constexpr auto split = Fp32Products::split;
  const std::string thirds = splits_fp32() ? "fp32 as six products of bf16 by AMX" : library_name();
  if constexpr (std::is_same_v<T, float>)
    return {{std::nullopt, library_name()}, {std::nullopt, thirds, split}};
  if constexpr (std::is_same_v<T, f16>) return {{std::nullopt, "fp16" + panels}};
  std::vector<Way> all{{Bf16Products::widened, "bf16" + panels}};
  const std::string native = splits_fp32()       ? "bf16 by AMX"
                             : multiplies_bf16() ? "oneDNN brg:avx512_core_"
                                                 : "bf16" + panels;
  all.push_back({Bf16Products::native, native});
  return all;
}

/// Element (i, j) of op(A) op(B), whose elements are a[i * a_row + d * a_depth] and b[j * b_col + d *
/// b_depth].
struct Strides {
  std::int64_t a_row, a_depth, b_col, b_depth;
};

/// A hundred elements, those in the corners among them, against float64.
template <class In, class Out>
void expect_sampled(const Array<Out>& c, const Array<In>& a, const Array<In>& b, const GemmShape& s,
                    const Strides& at, double times, const char* what) {
  const double unit = std::is_same_v<Out, float> ? 1.2e-7 : std::is_same_v<Out, bf16> ? 3.9e-3 : 4.9e-4;
  for (int sample = 0; sample < 100; ++sample) {
    const std::int64_t i = sample < 4 ? (sample % 2) * (s.m - 1) : (sample * 7919LL) % s.m;
    const std::int64_t j = sample < 4 ? (sample / 2) * (s.n - 1) : (sample * 104729LL) % s.n;
    double sum = 0, magnitude = 0;
    for (std::int64_t d = 0; d < s.k; ++d) {
      const double term = static_cast<double>(a[i * at.a_row + d * at.a_depth]) *
                          static_cast<double>(b[j * at.b_col + d * at.b_depth]);
      sum += term;
      magnitude += term * term;
    }
    // Rounding of a sum of k terms in fp32, and of the result; a result that was added to is rounded again.
    const double bound = times * (4e-6 * std::sqrt(magnitude) + unit * std::abs(sum) + 1e-6);
    ASSERT_NEAR(static_cast<double>(c[i * s.n + j]), times * sum, bound) << what << " at " << i << ", " << j;
  }
}

template <class T>
class ModelProducts : public ::testing::Test {
 public:
  /// Prepares, looks at the kernel's name, and runs.
  void run(Gemm& gemm, const Way& way, const void* a, const void* b, void* c) {
    gemm.prepare(*exec_);
    ASSERT_TRUE(contains(gemm.implementation(), way.name)) << gemm.implementation() << ", not " << way.name;
    ASSERT_FALSE(contains(gemm.implementation(), "ref") || contains(gemm.implementation(), "loop"));
    gemm.run(*exec_, a, b, nullptr, c, space_.data());
  }

  void check(const LinearShape& s, const Way& way) {
    gemm_library(*exec_).bf16 = way.bf16;
    gemm_library(*exec_).fp32 = way.fp32;
    const DType type = dtype_of<T>();
    const std::int64_t bytes =
        std::max({gemm_workspace_bytes(s.tokens, s.out, s.in, type, type, Target::cpu),
                  gemm_workspace_bytes(s.tokens, s.in, s.out, type, type, Target::cpu),
                  gemm_workspace_bytes(s.out, s.in, s.tokens, type, type, Target::cpu)});
    space_ = Array<char>(static_cast<std::size_t>(bytes));
    const auto x = numbers<T>(s.tokens * s.in, 1), w = numbers<T>(s.out * s.in, 2),
               dy = numbers<T>(s.tokens * s.out, 3);
    Array<T> y(s.tokens * s.out), dx(s.tokens * s.in);
    Array<float> dw(s.out * s.in);
    run(*make_linear(s, type, false), way, x.data(), w.data(), y.data());
    expect_sampled(y, x, w, {.m = s.tokens, .n = s.out, .k = s.in}, {s.in, 1, s.in, 1}, 1, "y");
    run(*make_linear_grad_input(s, type, false), way, dy.data(), w.data(), dx.data());
    expect_sampled(dx, dy, w, {.m = s.tokens, .n = s.in, .k = s.out}, {s.out, 1, 1, s.in}, 1, "dx");
    run(*make_linear_grad_weight(s, type, DType::f32, false), way, dy.data(), x.data(), dw.data());
    run(*make_linear_grad_weight(s, type, DType::f32, true), way, dy.data(), x.data(), dw.data());
    expect_sampled(dw, dy, x, {.m = s.out, .n = s.in, .k = s.tokens}, {1, s.out, 1, s.in}, 2, "dw");
  }

 private:
  TestExec exec_;
  Array<char> space_;
};

using ModelTypes = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(ModelProducts, ModelTypes);

TYPED_TEST(ModelProducts, ForwardAndGradients) {
  for (const LinearShape& s : layers)
    for (const Way& way : ways<TypeParam>()) {
      SCOPED_TRACE(::testing::Message() << s.tokens << " tokens, " << s.in << " -> " << s.out);
      this->check(s, way);
      if (this->HasFatalFailure()) return;
    }
}

/// A head's products, whose logits are fp32 and begin on cache lines.
TEST(HeadProducts, TakeTheLibrary) {
  const TestExec exec;
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t vocabulary : {257, 50257, 128256}) {
      const auto logits =
          make_gemm({.trans_b = true, .m = 64, .n = vocabulary, .k = 2048, .ldc = 131072}, type, DType::f32);
      const auto gradient = make_gemm({.m = 64, .n = 2048, .k = vocabulary, .lda = 131072}, type, type);
      for (Gemm* gemm : {logits.get(), gradient.get()}) {
        gemm->prepare(*exec);
        EXPECT_TRUE(contains(gemm->implementation(), "oneDNN")) << gemm->implementation();
        EXPECT_FALSE(contains(gemm->implementation(), "ref")) << gemm->implementation();
      }
    }
}

TEST(Bf16Products, ArePlainOnProcessorsWithoutInstructions) {
  const Bf16Products usual = usual_bf16_products();
  EXPECT_EQ(usual, usual_bf16_products());
  if (!multiplies_bf16()) {
    EXPECT_EQ(usual, Bf16Products::widened);
  }
}

TEST(Fp32Products, AreSplitWhereTheyCanBe) {
  EXPECT_EQ(usual_fp32_products() == Fp32Products::split, splits_fp32());
}

/// Rank 0 may ask for native where another rank has no such instructions.
TEST(Bf16Products, NativeFallsBackToPanels) {
  const TestExec exec;
  const auto through_panels = [&](std::optional<Bf16Products> way) {
    gemm_library(*exec).bf16 = way;
    const auto gemm = make_gemm({.m = 8, .n = 8, .k = 8}, DType::bf16, DType::bf16);
    gemm->prepare(*exec);
    return contains(gemm->implementation(), "panels");
  };
  EXPECT_EQ(through_panels(Bf16Products::native), !multiplies_bf16());
  EXPECT_TRUE(through_panels(Bf16Products::widened));
  EXPECT_TRUE(through_panels(std::nullopt)) << "what was not chosen is what every processor has";
}

}  // namespace
}  // namespace ztrain::kernels::kernels_products_test
