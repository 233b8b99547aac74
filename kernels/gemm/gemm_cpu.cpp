// Which product a CPU takes for a shape and its types.

#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

/// A product of bf16 matrices on a processor that multiplies them: by its instructions, or widened, as the
/// Exec says that first prepares or runs it.
class GemmBf16 : public Gemm {
 public:
  GemmBf16(const GemmShape& shape, DType out) : shape_(shape), out_(out) {}

  void prepare(Exec& exec, Starts) override {
    if (gemm_) return;
    const bool native = gemm_library(exec).bf16.value_or(Bf16Products::widened) == Bf16Products::native;
    if (native) gemm_ = make_gemm_onednn(shape_, DType::bf16, out_);
    if (!gemm_) gemm_ = make_gemm_half(shape_, DType::bf16, out_);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    prepare(exec, Starts::aligned);  // it makes no difference
    gemm_->run(exec, a, b, bias, c, workspace);
  }

  std::string implementation() const override { return gemm_ ? gemm_->implementation() : "not prepared"; }

 private:
  GemmShape shape_;
  DType out_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace

std::optional<AlgorithmHome> algorithm_home() {
  return std::nullopt;
}

std::unique_ptr<Gemm> make_gemm(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  if (is_row_product(s, in, out)) return make_gemm_row(s, in, out);
  const bool half = in == DType::bf16 || in == DType::f16;
  if (half && (out == in || out == DType::f32)) {
    if (in == DType::bf16 && multiplies_bf16()) return std::make_unique<GemmBf16>(s, out);
    return make_gemm_half(s, in, out);
  }
  if (in == DType::f32 && out == DType::f32) {
    if (auto gemm = make_gemm_onednn(s, in, out)) return gemm;
  }
  return make_gemm_reference(s, in, out);
}

}  // namespace ztrain::kernels
