#pragma once
// From dtypes known when a Program is bound to kernel templates.

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "engine/kernel_table.hpp"
#include "kernel_interface/view.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::engine {

/// A value-less stand-in for a type, so that a generic lambda can be called with it.
template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) for T in {float, bf16, f16, double}.
template <class F>
auto with_type(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      return f(Type<float>{});
    case DType::bf16:
      return f(Type<bf16>{});
    case DType::f16:
      return f(Type<f16>{});
    case DType::f64:
      return f(Type<double>{});
    default:
      ASSERT(false, "no kernel computes in {}", name_of(type));
  }
}

/// Calls f(Type<T>{}, Type<G>{}) for the legal pairs of activation and parameter-gradient types.
template <class F>
auto with_gradient_types(DType t, DType g, F&& f) {
  if (t == DType::f32 && g == DType::f32) return f(Type<float>{}, Type<float>{});
  if (t == DType::bf16 && g == DType::f32) return f(Type<bf16>{}, Type<float>{});
  if (t == DType::bf16 && g == DType::bf16) return f(Type<bf16>{}, Type<bf16>{});
  if (t == DType::f16 && g == DType::f32) return f(Type<f16>{}, Type<float>{});
  if (t == DType::f16 && g == DType::f16) return f(Type<f16>{}, Type<f16>{});
  if (t == DType::f64 && g == DType::f64) return f(Type<double>{}, Type<double>{});
  ASSERT(false, "no kernel turns {} activations into {} gradients", name_of(t), name_of(g));
}

template <class T>
Matrix<T> matrix(T* data, const program::Tensor& t) {
  return {data, t.shape.at(0), elements(t.shape) / t.shape.at(0)};
}
template <class T>
Vector<T> vector(T* data, const program::Tensor& t) {
  return {data, elements(t.shape)};
}
/// Views of operands of a Binding.
template <class T>
Matrix<const T> in_matrix(const Binding& b, std::size_t i) {
  return matrix<const T>(b.input<T>(i), b.in(i));
}
template <class T>
Vector<const T> in_vector(const Binding& b, std::size_t i) {
  return vector<const T>(b.input<T>(i), b.in(i));
}
template <class T>
Matrix<T> out_matrix(const Binding& b, std::size_t i) {
  return matrix<T>(b.output<T>(i), b.out(i));
}
template <class T>
Vector<T> out_vector(const Binding& b, std::size_t i) {
  return vector<T>(b.output<T>(i), b.out(i));
}

/// Of a matrix, so many rows from one on.
template <class M>
M rows_of(const M& matrix, std::int64_t begin, std::int64_t count) {
  return {matrix.data + begin * matrix.cols, count, matrix.cols};
}

inline bool accumulates(const Binding& b) {
  return program::accumulates(b.op);
}

}  // namespace ztrain::engine
