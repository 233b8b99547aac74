#include "kernels/gemm/gemm_half_panels.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"
#include "kernels/gemm/gemm_ways.hpp"

namespace ztrain::kernels {
namespace {

using namespace gemm_half;

template <class In, class Out>
class GemmHalf : public Gemm {
 public:
  explicit GemmHalf(const GemmShape& shape) : shape_(shape) {
    for_panels(shape_, [&](const Panel& p) {
      if (!find(p)) products_.push_back({p, make_gemm(product_of<Out>(shape_, p), DType::f32, DType::f32)});
    });
  }

  void prepare(Exec& exec, Starts starts) override {
    for (const Product& product : products_) product.gemm->prepare(exec, starts);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    multiply<In, Out>(exec, shape_, a, b, bias, c, workspace,
                      [&](const Panel& p, const float* x, const float* y, const float* row, float* sums) {
                        find(p)->run(exec, x, y, row, sums, workspace);
                      });
  }

  std::string implementation() const override {
    return fmt::format("{} through fp32 panels, {}", name_of(dtype_of<In>()),
                       products_.front().gemm->implementation());
  }

 private:
  struct Product {
    Panel like;  ///< the first panel that it serves
    std::unique_ptr<Gemm> gemm;
  };

  Gemm* find(const Panel& p) const {
    for (const Product& product : products_) {
      const Panel& q = product.like;
      if (q.m == p.m && q.n == p.n && q.k == p.k && (q.d0 > 0) == (p.d0 > 0)) return product.gemm.get();
    }
    return nullptr;
  }

  GemmShape shape_;
  std::vector<Product> products_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm_half(const GemmShape& shape, DType in, DType out) {
  if (in == DType::bf16 && out == DType::bf16) return std::make_unique<GemmHalf<bf16, bf16>>(shape);
  if (in == DType::bf16 && out == DType::f32) return std::make_unique<GemmHalf<bf16, float>>(shape);
  if (in == DType::f16 && out == DType::f16) return std::make_unique<GemmHalf<f16, f16>>(shape);
  if (in == DType::f16 && out == DType::f32) return std::make_unique<GemmHalf<f16, float>>(shape);
  fail("matrix product: no kernel for {} -> {}; use sums of the same type or of fp32", name_of(in),
       name_of(out));
}

}  // namespace ztrain::kernels
