#include "engine/dispatch.hpp"
#include "tests/additions/geglu/geglu.hpp"
#include "tests/additions/geglu/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_geglu(const Binding& b) {
  using Op = Geglu;
  return with_type(b.out(Op::y).dtype, [&]<class T>() {
    return launch(b, kernels::geglu_forward<T>, in_vector<T>(b, Op::gate), in_vector<T>(b, Op::up),
                  out_vector<T>(b, Op::y));
  });
}

Bound bind_geglu_grad(const Binding& b) {
  using Op = GegluGrad;
  return with_type(b.out(Op::dup).dtype, [&]<class T>() {
    return launch(b, kernels::geglu_backward<T>, in_vector<T>(b, Op::gate), in_vector<T>(b, Op::up),
                  in_vector<T>(b, Op::dy), out_vector<T>(b, Op::dgate), out_vector<T>(b, Op::dup));
  });
}

}  // namespace

std::span<const KernelRow> geglu_kernels() {
  static constexpr KernelRow rows[] = {
      {Geglu::op, bind_geglu},
      {GegluGrad::op, bind_geglu_grad},
  };
  return rows;
}

}  // namespace ztrain::engine
