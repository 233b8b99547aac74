#include "engine/dispatch.hpp"
#include "kernels/sinks/record.hpp"
#include "kernels/sinks/sinks.hpp"

namespace ztrain::engine {
namespace {

template <class T, class Op>
kernels::Sinks<T> sinks_of(const Binding& b) {
  return {in_vector<T>(b, Op::sinks), b.record<Op>().first};
}

Bound bind_sinks(const Binding& b) {
  using Op = AttentionSinks;
  return with_type(b.out(Op::o_with).dtype, [&]<class T>() {
    return launch(b, kernels::add_sinks<T>, sinks_of<T, Op>(b), out_matrix<T>(b, Op::o_with),
                  out_matrix<acc_t<T>>(b, Op::lse_with));
  });
}

Bound bind_sinks_grad(const Binding& b) {
  using Op = AttentionSinksGrad;
  return with_gradient_types(b.in(Op::o).dtype, b.out(Op::dsinks).dtype, [&]<class T, class G>() {
    return launch(b, kernels::sinks_backward<T, G>, sinks_of<T, Op>(b), in_matrix<T>(b, Op::o),
                  in_matrix<acc_t<T>>(b, Op::lse), in_matrix<T>(b, Op::dout), out_vector<G>(b, Op::dsinks),
                  accumulates(b), b.output<std::byte>(Op::workspace));
  });
}

}  // namespace

std::span<const KernelRow> sinks_kernels() {
  static constexpr KernelRow rows[] = {
      {AttentionSinks::op, bind_sinks},
      {AttentionSinksGrad::op, bind_sinks_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
