// Which product a CPU takes for a shape and its types.

#include <utility>

#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

std::unique_ptr<Gemm> make_fp32_native(const GemmShape& s) {
  auto gemm = make_gemm_onednn(s, DType::f32, DType::f32);
  return gemm ? std::move(gemm) : make_gemm_reference(s, DType::f32, DType::f32);
}

/// A product of which this processor has two ways: by its instructions for bf16, or without them, as the Exec
/// says that first prepares or runs it.
class GemmOfTwoWays : public Gemm {
 public:
  GemmOfTwoWays(const GemmShape& shape, DType in, DType out) : shape_(shape), in_(in), out_(out) {}

  void prepare(Exec& exec, Starts starts) override {
    if (gemm_) return;
    gemm_ = in_ == DType::f32 ? make_fp32(gemm_library(exec)) : make_bf16(gemm_library(exec));
    gemm_->prepare(exec, starts);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    prepare(exec, Starts::aligned);  // it makes no difference
    gemm_->run(exec, a, b, bias, c, workspace);
  }

  std::string implementation() const override { return gemm_ ? gemm_->implementation() : "not prepared"; }

 private:
  std::unique_ptr<Gemm> make_bf16(const GemmLibrary& library) const {
    if (library.bf16.value_or(Bf16Products::widened) == Bf16Products::native) {
      if (auto gemm = make_gemm_tiles(shape_, in_, out_)) return gemm;
      if (auto gemm = make_gemm_onednn(shape_, in_, out_)) return gemm;
    }
    return make_gemm_half(shape_, in_, out_);
  }

  std::unique_ptr<Gemm> make_fp32(const GemmLibrary& library) const {
    if (library.fp32 == Fp32Products::split)
      if (auto gemm = make_gemm_tiles(shape_, in_, out_)) return gemm;
    return make_fp32_native(shape_);
  }

  GemmShape shape_;
  DType in_, out_;
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
    if (in == DType::bf16 && multiplies_bf16()) return std::make_unique<GemmOfTwoWays>(s, in, out);
    return make_gemm_half(s, in, out);
  }
  if (in == DType::f32 && out == DType::f32) {
    if (splits_fp32()) return std::make_unique<GemmOfTwoWays>(s, in, out);
    return make_fp32_native(s);
  }
  return make_gemm_reference(s, in, out);
}

}  // namespace ztrain::kernels
