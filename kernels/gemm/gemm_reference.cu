// Matrix product for what cuBLASLt lacks, tile by tile.

#include <cuda_runtime.h>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/gemm_tile_cuda.hpp"
#include "runtime/device/launch_cuda.hpp"

namespace ztrain::kernels {
namespace {

using namespace gemm_tile;

template <class In, class Out>
__global__ void __launch_bounds__(side* side)
    multiply_tiles(GemmShape s, const In* a, const In* b, const In* bias, Out* c, std::int64_t across) {
  multiply(s, a, b, bias, c, blockIdx.x / across * tile, blockIdx.x % across * tile);
}

template <class In, class Out>
class GemmLoop : public Gemm {
 public:
  explicit GemmLoop(const GemmShape& shape)
      : shape_(shape), across_(ceil_div(shape.n, tile)), blocks_(ceil_div(shape.m, tile) * across_) {
    REQUIRE(blocks_ < std::int64_t{1} << 31, "matrix product: m = {} and n = {} are beyond this kernel",
            shape.m, shape.n);
  }

  void run(Exec& exec, const void* a, const void* b, const void* bias, void* c, void*) override {
    runtime::launch("the loop of a matrix product", multiply_tiles<In, Out>, blocks_, side * side,
                    native_stream(exec), shape_, static_cast<const In*>(a), static_cast<const In*>(b),
                    static_cast<const In*>(bias), static_cast<Out*>(c), across_);
  }

  std::string implementation() const override { return "plain loop"; }

 private:
  GemmShape shape_;
  std::int64_t across_, blocks_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm_reference(const GemmShape& shape, DType in, DType out) {
  const GemmShape s = complete(shape);
  return with_gradient_types(in, out, [&]<class In, class Out>() -> std::unique_ptr<Gemm> {
    return std::make_unique<GemmLoop<In, Out>>(s);
  });
}

}  // namespace ztrain::kernels
