#include "base/error.hpp"
#include "kernels/fp8/gemm_fp8.hpp"
#include "kernels/gemm/gemm_blocks.hpp"

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
      float value = scale * sum[i * gemm_blocks::cols + j];
      if (s.bias) value += static_cast<float>(p.bias[j0 + j]);
      if (s.accumulate) value += static_cast<float>(row[j]);
      row[j] = static_cast<Out>(value);
    }
  }
}

/// A loop over cache blocks, as gemm_reference_cpu.cpp; sums in order of k.
template <class A, class B, class Out>
class GemmFp8Loop : public GemmFp8 {
 public:
  explicit GemmFp8Loop(const GemmFp8Shape& shape) : shape_(shape) {}

  void run(Exec& exec, const void* a, const float* a_scale, const void* b, const float* b_scale,
           const void* bias, void* c, void*) override {
    const Operands<A, B, Out> p{static_cast<const A*>(a),       a_scale,
                                static_cast<const B*>(b),       b_scale,
                                static_cast<const bf16*>(bias), static_cast<Out*>(c)};
    gemm_blocks::for_each(exec, shape_, [=, s = shape_](std::int64_t i0, std::int64_t j0, int m, int n) {
      alignas(64) float sum[gemm_blocks::rows * gemm_blocks::cols] = {};
      gemm_blocks::add_products<A, B>({p.a + i0 * s.lda, s.lda, 1}, {p.b + j0 * s.ldb, 1, s.ldb}, s.k, m, n,
                                      sum);
      store(s, p, sum, i0, j0, m, n);
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
