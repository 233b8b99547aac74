#pragma once
// From dtypes that are known when something is prepared to the templates that compute in them.

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace ztrain {

/// f.operator()<T>() for T in {float, bf16, f16, double}. Throws Error for other types.
template <class F>
auto with_type(DType type, const F& f) {
  switch (type) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    case DType::f64:
      return f.template operator()<double>();
    default:
      fail("no kernel computes in {}", name_of(type));
  }
}

/// Calls f.operator()<A>() for A in {float, double}: `type` is that of sums (acc_t).
template <class F>
auto with_sum_type(DType type, const F& f) {
  return type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

/// f.operator()<T, G>() for the legal pairs of what is read and what is made of it, as of activations and
/// gradients of parameters. Throws Error for others.
template <class F>
auto with_gradient_types(DType t, DType g, const F& f) {
  if (t == DType::f32 && g == DType::f32) return f.template operator()<float, float>();
  if (t == DType::bf16 && g == DType::f32) return f.template operator()<bf16, float>();
  if (t == DType::bf16 && g == DType::bf16) return f.template operator()<bf16, bf16>();
  if (t == DType::f16 && g == DType::f32) return f.template operator()<f16, float>();
  if (t == DType::f16 && g == DType::f16) return f.template operator()<f16, f16>();
  if (t == DType::f64 && g == DType::f64) return f.template operator()<double, double>();
  fail("no kernel for {} -> {}; use fp32, bf16, bf16 -> fp32, fp16, fp16 -> fp32 or fp64", name_of(t),
       name_of(g));
}

}  // namespace ztrain
