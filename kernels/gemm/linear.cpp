#include "kernels/gemm/linear.hpp"

namespace ztrain::kernels {

std::unique_ptr<Gemm> make_linear(const LinearShape& s, DType type, bool bias) {
  return make_gemm({.trans_b = true, .m = s.tokens, .n = s.out, .k = s.in, .bias = bias}, type, type);
}

std::unique_ptr<Gemm> make_linear_grad_input(const LinearShape& s, DType type, bool accumulate) {
  return make_gemm({.m = s.tokens, .n = s.in, .k = s.out, .accumulate = accumulate}, type, type);
}

std::unique_ptr<Gemm> make_linear_grad_weight(const LinearShape& s, DType type, DType gradient,
                                              bool accumulate) {
  return make_gemm({.trans_a = true, .m = s.out, .n = s.in, .k = s.tokens, .accumulate = accumulate}, type,
                   gradient);
}

}  // namespace ztrain::kernels
