#include "engine/dispatch.hpp"
#include "kernels/dora/dora.hpp"
#include "kernels/dora/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_dora_squares(const Binding& b) {
  using Op = DoraSquares;
  return with_type(b.in(Op::weight).dtype, [&]<class T>() {
    return launch(b, kernels::dora_squares<T>, in_matrix<T>(b, Op::weight), in_matrix<T>(b, Op::a),
                  in_matrix<T>(b, Op::b), b.record<Op>().scale, out_vector<acc_t<T>>(b, Op::squares));
  });
}

Bound bind_dora_scale(const Binding& b) {
  using Op = DoraScale;
  const bool bias = b.op.inputs.size() > Op::bias && b.record<Op>().adds_bias != 0;
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::dora_scale<T>, in_matrix<T>(b, Op::x), in_vector<T>(b, Op::magnitude),
                  in_vector<acc_t<T>>(b, Op::squares), bias ? in_vector<T>(b, Op::bias) : Vector<const T>{},
                  out_matrix<T>(b, Op::y));
  });
}

Bound bind_dora_grad_magnitude(const Binding& b) {
  using Op = DoraGradMagnitude;
  return with_gradient_types(b.in(Op::dy).dtype, b.out(Op::dmagnitude).dtype, [&]<class T, class G>() {
    return launch(b, kernels::dora_grad_magnitude<T, G>, in_matrix<T>(b, Op::dy), in_matrix<T>(b, Op::x),
                  in_vector<acc_t<T>>(b, Op::squares), out_vector<G>(b, Op::dmagnitude), accumulates(b));
  });
}

}  // namespace

std::span<const KernelRow> dora_kernels() {
  static constexpr KernelRow rows[] = {
      {DoraSquares::op, bind_dora_squares},
      {DoraScale::op, bind_dora_scale},
      {DoraGradMagnitude::op, bind_dora_grad_magnitude},
  };
  return rows;
}

}  // namespace ztrain::engine
