#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_blocks.hpp"
#include "kernels/gemm/gemm_ragged.hpp"

namespace ztrain::kernels {
namespace {

template <class In, class Out>
void store(const acc_t<In>* __restrict sum, int rows, int cols, const In* bias, bool accumulate, Out* c,
           std::int64_t ldc) {
  using A = acc_t<In>;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      const A old =
          (bias ? static_cast<A>(bias[j]) : A(0)) + (accumulate ? static_cast<A>(c[i * ldc + j]) : A(0));
      c[i * ldc + j] = static_cast<Out>(old + sum[i * gemm_blocks::cols + j]);
    }
}

template <class In, class Out>
class GemmReference : public Gemm {
 public:
  explicit GemmReference(const GemmShape& shape) : shape_(shape) {}

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void*) override {
    const auto* left = static_cast<const In*>(a);
    const auto* right = static_cast<const In*>(b);
    const auto* row = static_cast<const In*>(bias);
    auto* result = static_cast<Out*>(c);
    gemm_blocks::for_each(exec, shape_, [=, s = shape_](std::int64_t i0, std::int64_t j0, int m, int n) {
      alignas(64) acc_t<In> sum[gemm_blocks::rows * gemm_blocks::cols] = {};
      const std::int64_t a_row = s.trans_a ? 1 : s.lda, a_col = s.trans_a ? s.lda : 1;
      const std::int64_t b_row = s.trans_b ? 1 : s.ldb, b_col = s.trans_b ? s.ldb : 1;
      gemm_blocks::add_products<In, In>({left + i0 * a_row, a_row, a_col}, {right + j0 * b_col, b_row, b_col},
                                        s.k, m, n, sum);
      store(sum, m, n, s.bias ? row + j0 : nullptr, s.accumulate, result + i0 * s.ldc + j0, s.ldc);
    });
  }

  std::string implementation() const override { return "plain loop"; }

 private:
  GemmShape shape_;
};

}  // namespace

void multiply_plainly(Exec& exec, const GemmShape& s, DType in, DType out, const GemmOperands& o) {
  with_gradient_types(in, out, [&]<class In, class Out>() {
    GemmReference<In, Out>(s).run(exec, o.a, o.b, o.bias, o.c, o.workspace);
  });
}

std::unique_ptr<Gemm> make_gemm_reference(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  return with_gradient_types(in, out, [&]<class In, class Out>() -> std::unique_ptr<Gemm> {
    return std::make_unique<GemmReference<In, Out>>(s);
  });
}

}  // namespace ztrain::kernels
