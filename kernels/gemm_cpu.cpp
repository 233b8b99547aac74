// Which product a CPU takes for a shape and its types.

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/kernel_workspace.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_half.hpp"
#include "kernels/gemm_library.hpp"
#include "kernels/gemm_onednn.hpp"
#include "kernels/gemm_row.hpp"

namespace ztrain::kernels {
namespace {

/// A product of bf16 matrices on a processor that multiplies them: by its instructions, or widened, as the
/// Exec says that first prepares or runs it.
class GemmBf16 : public Gemm {
 public:
  GemmBf16(const GemmShape& shape, DType out) : shape_(shape), out_(out) {}

  void prepare(Exec& exec) override {
    if (gemm_) return;
    const bool native = gemm_library(exec).bf16.value_or(Bf16Products::widened) == Bf16Products::native;
    if (native) gemm_ = make_gemm_onednn(shape_, DType::bf16, out_);
    if (!gemm_) gemm_ = make_gemm_half(shape_, DType::bf16, out_);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    prepare(exec);
    gemm_->run(exec, a, b, bias, c, workspace);
  }

  std::string implementation() const override { return gemm_ ? gemm_->implementation() : "not prepared"; }

 private:
  GemmShape shape_;
  DType out_;
  std::unique_ptr<Gemm> gemm_;
};

/// Of the fastest of a few runs.
double seconds_of(Exec& exec, Gemm& gemm, const GemmShape& s) {
  using Clock = std::chrono::steady_clock;
  const std::vector<bf16> a(static_cast<std::size_t>(s.m * s.k), bf16(0.5f)),
      b(static_cast<std::size_t>(s.n * s.k), bf16(0.25f));
  std::vector<bf16> c(static_cast<std::size_t>(s.m * s.n));
  const std::int64_t bytes = gemm_workspace_bytes(s.m, s.n, s.k, DType::bf16, DType::bf16, Target::cpu);
  std::vector<std::byte> workspace(static_cast<std::size_t>(bytes) + 64);
  void* space = workspace.data();
  std::size_t left = workspace.size();
  std::align(64, static_cast<std::size_t>(bytes), space, left);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    gemm.run(exec, a.data(), b.data(), nullptr, c.data(), space);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

Bf16Products fastest_bf16_products(Exec& exec) {
  if (!onednn_has_bf16()) return Bf16Products::widened;
  const GemmShape s = complete({.trans_b = true, .m = 256, .n = 512, .k = 512});
  const auto native = make_gemm_onednn(s, DType::bf16, DType::bf16);
  if (!native) return Bf16Products::widened;
  const auto widened = make_gemm_half(s, DType::bf16, DType::bf16);
  const bool faster = seconds_of(exec, *native, s) * bf16_native_gain < seconds_of(exec, *widened, s);
  return faster ? Bf16Products::native : Bf16Products::widened;
}

bool multiplies_bf16() {
  return onednn_has_bf16();
}

std::optional<AlgorithmHome> algorithm_home() {
  return std::nullopt;
}

std::unique_ptr<Gemm> make_gemm(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  if (is_row_product(s, in, out)) return make_gemm_row(s, in, out);
  const bool half = in == DType::bf16 || in == DType::f16;
  if (half && (out == in || out == DType::f32)) {
    if (in == DType::bf16 && onednn_has_bf16()) return std::make_unique<GemmBf16>(s, out);
    return make_gemm_half(s, in, out);
  }
  if (in == DType::f32 && out == DType::f32) {
    if (auto gemm = make_gemm_onednn(s, in, out)) return gemm;
  }
  return make_gemm_reference(s, in, out);
}

}  // namespace ztrain::kernels
