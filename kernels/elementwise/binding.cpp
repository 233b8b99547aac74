#include "engine/dispatch.hpp"
#include "kernels/elementwise/arithmetic.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_add(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::add<T>, in_vector<T>(b, Add::x), in_vector<T>(b, Add::addend),
                  out_vector<T>(b, Add::sum));
  });
}

Bound bind_scale(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::scale<T>, in_vector<T>(b, Scale::x), b.record<Scale>().factor,
                  out_vector<T>(b, Scale::y));
  });
}

Bound bind_soft_cap(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::soft_cap<T>, in_vector<T>(b, SoftCap::x), b.record<SoftCap>().cap,
                  out_vector<T>(b, SoftCap::y));
  });
}

Bound bind_cast(const Binding& b) {
  using Op = program::Cast;
  return with_type(b.in(Op::x).dtype, [&]<class A>() {
    return with_type(b.out(Op::y).dtype, [&]<class B>() {
      return launch(b, kernels::cast<A, B>, in_vector<A>(b, Op::x), out_vector<B>(b, Op::y));
    });
  });
}

Bound bind_zero_gaps(const Binding& b) {
  using Op = program::ZeroGaps;
  return {[&exec = b.exec, to = b.output<std::byte>(Op::gradient), width = size_of(b.out(Op::gradient).dtype),
           gaps = b.record<Op>().gaps] {
    for (const program::Elements& gap : gaps) kernels::zero(exec, to + gap.begin * width, gap.count * width);
  }};
}

Bound bind_release(const Binding&) {
  return {[] {}};
}

}  // namespace

std::span<const KernelRow> elementwise_kernels() {
  static constexpr KernelRow rows[] = {
      {Add::op, bind_add},
      {Scale::op, bind_scale},
      {SoftCap::op, bind_soft_cap},
      {program::Cast::op, bind_cast},
      {program::Release::op, bind_release},
      {program::ZeroGaps::op, bind_zero_gaps},
  };
  return rows;
}

}  // namespace ztrain::engine
