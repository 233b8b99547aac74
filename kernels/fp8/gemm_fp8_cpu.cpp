#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/gemm/gemm_reference.hpp"
#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {
namespace {

/// The pointers of one run.
template <class A, class B, class Out>
struct Operands {
  const A* a;
  const float* a_scale;
  const B* b;
  const float* b_scale;
  const bf16* bias;
  Out* c;
};

/// The block of C at (i0, j0), of at most m x n, from the sums of its codes' products.
template <class A, class B, class Out>
void store(const GemmFp8Shape& s, const Operands<A, B, Out>& p, const float* __restrict sum, std::int64_t i0,
           std::int64_t j0, int m, int n) {
  const bool rowwise = s.scales == Fp8Scales::rowwise;
  for (int i = 0; i < m; ++i) {
    Out* const row = p.c + (i0 + i) * s.ldc + j0;
    const float left = p.a_scale[rowwise ? i0 + i : 0];
    for (int j = 0; j < n; ++j) {
      const float scale = left * p.b_scale[rowwise ? j0 + j : 0];
      float value = scale * sum[i * gemm_detail::cols + j];
      if (s.bias) value += static_cast<float>(p.bias[j0 + j]);
      if (s.accumulate) value += static_cast<float>(row[j]);
      row[j] = static_cast<Out>(value);
    }
  }
}

template <class A, class B, class Out>
void block(const GemmFp8Shape& s, const Operands<A, B, Out>& p, std::int64_t i0, std::int64_t j0) {
  using namespace gemm_detail;
  alignas(64) float left[rows * depth], right[depth * cols], sum[rows * cols] = {};
  const int m = static_cast<int>(std::min<std::int64_t>(rows, s.m - i0));
  const int n = static_cast<int>(std::min<std::int64_t>(cols, s.n - j0));
  for (std::int64_t d0 = 0; d0 < s.k; d0 += depth) {
    const int d = static_cast<int>(std::min<std::int64_t>(depth, s.k - d0));
    load(p.a + i0 * s.lda + d0, s.lda, 1, m, d, left);
    load(p.b + j0 * s.ldb + d0, 1, s.ldb, d, n, right);
    tile::product<float, true>(m, cols, d, left, depth, 1, right, cols, sum, cols);
  }
  store(s, p, sum, i0, j0, m, n);
}

/// A loop over cache blocks, as gemm_reference.hpp; sums in order of k.
template <class A, class B, class Out>
class GemmFp8Loop : public GemmFp8 {
 public:
  explicit GemmFp8Loop(const GemmFp8Shape& shape) : shape_(shape) {}

  void run(Exec& exec, const void* a, const float* a_scale, const void* b, const float* b_scale,
           const void* bias, void* c, void*) override {
    const GemmFp8Shape shape = shape_;
    const Operands<A, B, Out> operands{static_cast<const A*>(a),       a_scale,
                                       static_cast<const B*>(b),       b_scale,
                                       static_cast<const bf16*>(bias), static_cast<Out*>(c)};
    const std::int64_t across = ceil_div(shape.n, gemm_detail::cols);
    const std::int64_t blocks = ceil_div(shape.m, gemm_detail::rows) * across;
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace>(exec.space, 0, blocks), [=](std::int64_t i) {
          block(shape, operands, i / across * gemm_detail::rows, i % across * gemm_detail::cols);
        });
  }

 private:
  GemmFp8Shape shape_;
};

template <class Out>
std::unique_ptr<GemmFp8> make(const GemmFp8Shape& s, const GemmFp8Types& t) {
  if (t.a == DType::f8e4m3 && t.b == DType::f8e4m3)
    return std::make_unique<GemmFp8Loop<f8e4m3, f8e4m3, Out>>(s);
  if (t.a == DType::f8e5m2 && t.b == DType::f8e4m3)
    return std::make_unique<GemmFp8Loop<f8e5m2, f8e4m3, Out>>(s);
  if (t.a == DType::f8e4m3 && t.b == DType::f8e5m2)
    return std::make_unique<GemmFp8Loop<f8e4m3, f8e5m2, Out>>(s);
  return nullptr;
}

}  // namespace

std::unique_ptr<GemmFp8> make_gemm_fp8(const GemmFp8Shape& shape, const GemmFp8Types& types) {
  const GemmFp8Shape s = complete(shape);
  std::unique_ptr<GemmFp8> gemm;
  if (types.out == DType::bf16) gemm = make<bf16>(s, types);
  if (types.out == DType::f32) gemm = make<float>(s, types);
  REQUIRE(gemm != nullptr,
          "fp8 matrix product: no kernel for {} x {} -> {}; operands are fp8_e4m3, one of them may be "
          "fp8_e5m2, and "
          "the result is bf16 or fp32",
          name_of(types.a), name_of(types.b), name_of(types.out));
  return gemm;
}

}  // namespace ztrain::kernels
