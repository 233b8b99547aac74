#pragma once
// Linear layer y = x W^T (+ bias) and its gradients. x [tokens, in], y [tokens, out], W [out, in] as in
// PyTorch and in Hugging Face checkpoints. The three products are prepared Gemms; each comment gives the
// pointers to run them with.

#include <memory>

#include "kernel_interface/view.hpp"
#include "kernels/gemm/gemm.hpp"

namespace ztrain::kernels {

struct LinearShape {
  std::int64_t tokens = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

/// run(exec, x, W, bias or nullptr, y, workspace). `type` is that of x, W, bias and y.
inline std::unique_ptr<Gemm> make_linear(const LinearShape& s, DType type, bool bias) {
  return make_gemm({.trans_b = true, .m = s.tokens, .n = s.out, .k = s.in, .bias = bias}, type, type);
}

/// run(exec, dy, W, nullptr, dx, workspace): dx = dy W, or += when accumulate.
inline std::unique_ptr<Gemm> make_linear_grad_input(const LinearShape& s, DType type, bool accumulate) {
  return make_gemm({.m = s.tokens, .n = s.in, .k = s.out, .accumulate = accumulate}, type, type);
}

/// run(exec, dy, x, nullptr, dW, workspace): dW = dy^T x, or += when accumulate. `gradient` is the type of
/// dW.
inline std::unique_ptr<Gemm> make_linear_grad_weight(const LinearShape& s, DType type, DType gradient,
                                                     bool accumulate) {
  return make_gemm({.trans_a = true, .m = s.out, .n = s.in, .k = s.tokens, .accumulate = accumulate}, type,
                   gradient);
}

/// db[out] = column sums of dy [tokens, out], or += when accumulate; summed in a fixed order. (T, G) is
/// (float, float), (bf16, float), (bf16, bf16), (f16, float), (f16, f16) or (double, double).
template <class T, class G>
void linear_grad_bias(Exec& exec, Matrix<const T> dy, Vector<G> db, bool accumulate);

}  // namespace ztrain::kernels
