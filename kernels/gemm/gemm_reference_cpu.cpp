#include "kernels/gemm/gemm_reference.hpp"

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {
namespace {

template <class In, class Out>
class GemmReference : public Gemm {
 public:
  explicit GemmReference(const GemmShape& shape) : shape_(shape) {}

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void*) override {
    const GemmShape shape = shape_;
    const auto* left = static_cast<const In*>(a);
    const auto* right = static_cast<const In*>(b);
    const auto* row = static_cast<const In*>(bias);
    auto* result = static_cast<Out*>(c);
    const std::int64_t across = ceil_div(shape.n, gemm_detail::cols);
    const std::int64_t blocks = ceil_div(shape.m, gemm_detail::rows) * across;
    Kokkos::parallel_for(
        Kokkos::RangePolicy<Kokkos::DefaultExecutionSpace>(exec.space, 0, blocks), [=](std::int64_t i) {
          gemm_reference_block(shape, left, right, row, result, i / across * gemm_detail::rows,
                               i % across * gemm_detail::cols);
        });
  }

  std::string implementation() const override { return "plain loop"; }

 private:
  GemmShape shape_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm_reference(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  if (in == DType::f64 && out == DType::f64) return std::make_unique<GemmReference<double, double>>(s);
  if (in == DType::f32 && out == DType::f32) return std::make_unique<GemmReference<float, float>>(s);
  if (in == DType::bf16 && out == DType::bf16) return std::make_unique<GemmReference<bf16, bf16>>(s);
  if (in == DType::bf16 && out == DType::f32) return std::make_unique<GemmReference<bf16, float>>(s);
  if (in == DType::f16 && out == DType::f16) return std::make_unique<GemmReference<f16, f16>>(s);
  if (in == DType::f16 && out == DType::f32) return std::make_unique<GemmReference<f16, float>>(s);
  fail("matrix product: no kernel for {} -> {}; use fp32, bf16, bf16 -> fp32, fp16, fp16 -> fp32 or fp64",
       name_of(in), name_of(out));
}

}  // namespace ztrain::kernels
