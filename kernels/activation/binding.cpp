#include "engine/dispatch.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/record.hpp"
#include "kernels/activation/xielu.hpp"

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
  if (count == 1) return halves(in_matrix<T>(b, GatedActivation::gate));
  return {in_matrix<T>(b, GatedActivation::gate), in_matrix<T>(b, GatedActivation::up)};
}

template <class T>
std::pair<Columns<T>, Columns<T>> gate_and_up_out(const Binding& b, std::size_t count) {
  if (count == 1) return halves(out_matrix<T>(b, GatedActivation::gate));
  return {out_matrix<T>(b, GatedActivation::gate), out_matrix<T>(b, GatedActivation::up)};
}

Bound bind_gated(const Binding& b) {
  const auto kind = kernels::activation_kind(b.record<GatedActivation>().activation);
  return with_type(b.out(0).dtype, [&]<class T>() {
    const auto [gate, up] = gate_and_up_in<T>(b, b.op.inputs.size());
    return launch(b, kernels::gated_forward<T>, kind, gate, up, out_matrix<T>(b, GatedActivation::y));
  });
}

Bound bind_gated_grad(const Binding& b) {
  const auto kind = kernels::activation_kind(b.record<GatedActivationGrad>().activation);
  return with_type(b.out(0).dtype, [&]<class T>() {
    const std::size_t last = GatedActivationGrad::dy(b.op.inputs.size());
    const auto [gate, up] = gate_and_up_in<T>(b, last);
    const auto [dgate, dup] = gate_and_up_out<T>(b, last);
    return launch(b, kernels::gated_backward<T>, kind, gate, up, in_matrix<T>(b, last), dgate, dup);
  });
}

Bound bind_activation(const Binding& b) {
  using Op = Activation;
  const auto kind = kernels::activation_kind(b.record<Op>().activation);
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::activation_forward<T>, kind, in_vector<T>(b, Op::x), out_vector<T>(b, Op::y));
  });
}

Bound bind_activation_grad(const Binding& b) {
  using Op = ActivationGrad;
  const auto kind = kernels::activation_kind(b.record<Op>().activation);
  return with_type(b.out(Op::dx).dtype, [&]<class T>() {
    return launch(b, kernels::activation_backward<T>, kind, in_vector<T>(b, Op::x), in_vector<T>(b, Op::dy),
                  out_vector<T>(b, Op::dx));
  });
}

template <class T, class Record>
kernels::XieluConstants<T> xielu_constants(const Binding& b) {
  const auto record = b.record<Record>();
  return {b.input<T>(Record::alpha_p), b.input<T>(Record::alpha_n), record.beta, record.eps};
}

Bound bind_xielu(const Binding& b) {
  using Op = Xielu;
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::xielu_forward<T>, xielu_constants<T, Op>(b), in_matrix<T>(b, Op::x),
                  out_matrix<T>(b, Op::y));
  });
}

Bound bind_xielu_grad(const Binding& b) {
  using Op = XieluGrad;
  return with_gradient_types(b.out(Op::dx).dtype, b.out(Op::dalpha_p).dtype, [&]<class T, class G>() {
    return launch(b, kernels::xielu_backward<T, G>, xielu_constants<T, Op>(b), in_matrix<T>(b, Op::x),
                  in_matrix<T>(b, Op::dy), out_matrix<T>(b, Op::dx), b.output<G>(Op::dalpha_p),
                  b.output<G>(Op::dalpha_n), accumulates(b), b.output<std::byte>(Op::workspace));
  });
}

}  // namespace

std::span<const KernelRow> activation_kernels() {
  static constexpr KernelRow rows[] = {
      {GatedActivation::op, bind_gated}, {GatedActivationGrad::op, bind_gated_grad},
      {Activation::op, bind_activation}, {ActivationGrad::op, bind_activation_grad},
      {Xielu::op, bind_xielu},           {XieluGrad::op, bind_xielu_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
