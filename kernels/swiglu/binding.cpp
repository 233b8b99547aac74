#include "engine/dispatch.hpp"
#include "kernels/swiglu/record.hpp"
#include "kernels/swiglu/swiglu.hpp"

namespace ztrain::engine {
namespace {

/// The columns of a matrix that holds gate and up side by side.
template <class T>
std::pair<Columns<T>, Columns<T>> halves(Matrix<T> both) {
  const std::int64_t half = both.cols / 2;
  return {Columns<T>(both.data, both.rows, half, both.cols),
          Columns<T>(both.data + half, both.rows, half, both.cols)};
}

/// Returns gate and up: `count` operands are these two, or one that holds both.
template <class T>
std::pair<Columns<const T>, Columns<const T>> gate_and_up_in(const Binding& b, std::size_t count) {
  if (count == 1) return halves(in_matrix<T>(b, Swiglu::gate));
  return {in_matrix<T>(b, Swiglu::gate), in_matrix<T>(b, Swiglu::up)};
}

template <class T>
std::pair<Columns<T>, Columns<T>> gate_and_up_out(const Binding& b, std::size_t count) {
  if (count == 1) return halves(out_matrix<T>(b, Swiglu::gate));
  return {out_matrix<T>(b, Swiglu::gate), out_matrix<T>(b, Swiglu::up)};
}

Bound bind_swiglu(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    const auto [gate, up] = gate_and_up_in<T>(b, b.op.inputs.size());
    return launch(b, kernels::swiglu_forward<T>, gate, up, out_matrix<T>(b, Swiglu::y));
  });
}

Bound bind_swiglu_grad(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    const std::size_t last = SwigluGrad::dy(b.op.inputs.size());
    const auto [gate, up] = gate_and_up_in<T>(b, last);
    const auto [dgate, dup] = gate_and_up_out<T>(b, last);
    return launch(b, kernels::swiglu_backward<T>, gate, up, in_matrix<T>(b, last), dgate, dup);
  });
}

}  // namespace

std::span<const KernelRow> swiglu_kernels() {
  static constexpr KernelRow rows[] = {
      {Swiglu::op, bind_swiglu},
      {SwigluGrad::op, bind_swiglu_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
