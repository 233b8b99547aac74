#pragma once
// What binders are made of: views of an op's operands, and launches of kernels on them.

#include <memory>
#include <utility>

#include "engine/kernel_table.hpp"
#include "kernel_interface/view.hpp"
#include "kernel_interface/with_type.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::engine {

template <class T>
Matrix<T> matrix(T* data, const program::Tensor& t) {
  return {data, t.shape.at(0), elements(t.shape) / t.shape.at(0)};
}
/// Views of operands of a Binding.
template <class T>
Matrix<const T> in_matrix(const Binding& b, std::size_t i) {
  return matrix<const T>(b.input<T>(i), b.in(i));
}
template <class T>
Vector<const T> in_vector(const Binding& b, std::size_t i) {
  return {b.input<T>(i), elements(b.in(i).shape)};
}
template <class T>
Matrix<T> out_matrix(const Binding& b, std::size_t i) {
  return matrix<T>(b.output<T>(i), b.out(i));
}
template <class T>
Vector<T> out_vector(const Binding& b, std::size_t i) {
  return {b.output<T>(i), elements(b.out(i).shape)};
}

/// Of a matrix, so many rows from one on.
template <class M>
M rows_of(const M& matrix, std::int64_t begin, std::int64_t count) {
  return {matrix.data + begin * matrix.cols, count, matrix.cols};
}

inline bool accumulates(const Binding& b) {
  return program::accumulates(b.op);
}

/// kernel(exec of the op's stream, operands...), with the operands as they are now.
template <class Kernel, class... Operands>
Bound launch(const Binding& b, Kernel kernel, Operands... operands) {
  return {[&exec = b.exec, kernel, operands...] { kernel(exec, operands...); }};
}

/// prepared->run(exec of the op's stream, operands...), likewise.
template <class Prepared, class... Operands>
Bound launch(const Binding& b, std::shared_ptr<Prepared> prepared, Operands... operands) {
  return {[&exec = b.exec, prepared, operands...] { prepared->run(exec, operands...); }};
}

inline Bound with_notes(Bound bound, std::vector<Note> notes) {
  bound.notes = std::move(notes);
  return bound;
}

}  // namespace ztrain::engine
