#include "kernels/gemm/gemm_ragged.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/gemm_half_panels.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

class RaggedF32 : public RaggedGemm {
 public:
  void prepare(Exec& exec) override {
    split_ = splits_fp32() && gemm_library(exec).fp32 == Fp32Products::split;
  }
  void run(Exec& exec, const GemmShape& s, const GemmOperands& o) override {
    if (is_row_product(s, DType::f32, DType::f32)) return multiply_row(exec, s, DType::f32, o);
    if (split_ && multiply_tiles(exec, s, DType::f32, DType::f32, o)) return;
    multiply_sgemm(s, o);
  }
  std::string implementation() const override {
    return split_ ? "fp32 as six products of bf16 by AMX, any size" : "oneDNN sgemm";
  }

 private:
  bool split_ = false;
};

class RaggedPlain : public RaggedGemm {
 public:
  RaggedPlain(DType in, DType out) : in_(in), out_(out) {}
  void run(Exec& exec, const GemmShape& s, const GemmOperands& o) override {
    if (is_row_product(s, in_, out_)) return multiply_row(exec, s, in_, o);
    multiply_plainly(exec, s, in_, out_, o);
  }
  std::string implementation() const override { return "plain loop"; }

 private:
  DType in_, out_;
};

/// 16-bit products: by the processor's instructions for bf16 where the Exec says so, else in fp32 from
/// widened panels.
template <class In, class Out>
class RaggedHalf : public RaggedGemm {
 public:
  explicit RaggedHalf(const GemmShape& shape) : shape_(shape) {}

  void prepare(Exec& exec) override {
    panels_.prepare(exec);
    if (!std::is_same_v<In, bf16> || !multiplies_bf16()) return;
    if (gemm_library(exec).bf16.value_or(Bf16Products::widened) == Bf16Products::native)
      native_ = make_ragged_onednn(shape_, dtype_of<Out>());
  }

  void run(Exec& exec, const GemmShape& s, const GemmOperands& o) override {
    constexpr DType in = dtype_of<In>(), out = dtype_of<Out>();
    if (is_row_product(s, in, out)) return multiply_row(exec, s, in, o);
    if (native_) return multiply_tiles(exec, s, in, out, o) ? void() : native_->run(exec, s, o);
    gemm_half::multiply<In, Out>(
        exec, s, o.a, o.b, o.bias, o.c, o.workspace,
        [&](const gemm_half::Panel& p, const float* a, const float* b, const float* bias, float* c) {
          panels_.run(exec, gemm_half::product_of<Out>(s, p), {a, b, bias, c, o.workspace});
        });
  }

  std::string implementation() const override {
    if (native_) return native_->implementation();
    return fmt::format("{} through fp32 panels, {}", name_of(dtype_of<In>()), panels_.implementation());
  }

 private:
  GemmShape shape_;
  RaggedF32 panels_;
  std::unique_ptr<RaggedGemm> native_;
};

}  // namespace

std::unique_ptr<RaggedGemm> make_ragged_gemm(const GemmShape& shape, DType in, DType out) {
  return with_gradient_types(in, out, [&]<class In, class Out>() -> std::unique_ptr<RaggedGemm> {
    if constexpr (sizeof(In) == 2)
      return std::make_unique<RaggedHalf<In, Out>>(complete(shape));
    else if constexpr (sizeof(In) == 4)
      return std::make_unique<RaggedF32>();
    else
      return std::make_unique<RaggedPlain>(in, out);
  });
}

}  // namespace ztrain::kernels
