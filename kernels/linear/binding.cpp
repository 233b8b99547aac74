#include <cstdint>

#include "base/error.hpp"
#include "engine/dispatch.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/linear/record.hpp"

namespace ztrain::engine {
namespace {

/// The launch of a prepared product.
Bound product(const Binding& b, const std::shared_ptr<kernels::Gemm>& gemm, const void* x, const void* y,
              const void* bias, void* out) {
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool all = aligned(x) && aligned(y) && aligned(bias) && aligned(out);
  gemm->prepare(b.exec, all ? kernels::Starts::aligned : kernels::Starts::anywhere);
  auto* const workspace = b.output<std::byte>(b.op.outputs.size() - 1);
  return with_notes(launch(b, gemm, x, y, bias, out, workspace), product_notes(b, *gemm));
}

/// Where the operands from `first` on begin; they follow one another in memory.
template <class Operand, class Info>
auto joined(const Binding& b, std::size_t first, std::int64_t parts, const Operand& operand,
            const Info& info) {
  for (std::size_t i = first + 1; i < first + static_cast<std::size_t>(parts); ++i)
    ASSERT(operand(i) == operand(i - 1) + info(i - 1).bytes(), "{}: '{}' does not follow '{}' in memory",
           b.op.name, info(i).name, info(i - 1).name);
  return operand(first);
}
const std::byte* joined_input(const Binding& b, std::size_t first, std::int64_t parts) {
  return joined(
      b, first, parts, [&](std::size_t i) { return b.input<std::byte>(i); },
      [&](std::size_t i) -> const program::Tensor& { return b.in(i); });
}
std::byte* joined_output(const Binding& b, std::int64_t parts) {
  return joined(
      b, 0, parts, [&](std::size_t i) { return b.output<std::byte>(i); },
      [&](std::size_t i) -> const program::Tensor& { return b.out(i); });
}

Bound bind_linear(const Binding& b) {
  const auto record = b.record<Linear>();
  const kernels::LinearShape shape{b.in(Linear::x).shape[0], b.in(Linear::weight).shape[1],
                                   b.out(Linear::y).shape[1]};
  const bool bias = b.op.inputs.size() > record.bias() && record.adds_bias != 0;
  return product(b, kernels::make_linear(shape, b.in(Linear::x).dtype, bias), b.input<std::byte>(Linear::x),
                 joined_input(b, Linear::weight, record.parts),
                 bias ? joined_input(b, record.bias(), record.parts) : nullptr,
                 b.output<std::byte>(Linear::y));
}

Bound bind_linear_grad_input(const Binding& b) {
  using Op = LinearGradInput;
  const program::Tensor& dy = b.in(Op::dy);
  const kernels::LinearShape shape{dy.shape[0], b.in(Op::weight).shape[1], dy.shape[1]};
  return product(b, kernels::make_linear_grad_input(shape, dy.dtype, accumulates(b)),
                 b.input<std::byte>(Op::dy), joined_input(b, Op::weight, b.record<Op>().parts), nullptr,
                 b.output<std::byte>(Op::dx));
}

Bound bind_linear_grad_weight(const Binding& b) {
  using Op = LinearGradWeight;
  const program::Tensor& dy = b.in(Op::dy);
  const kernels::LinearShape shape{dy.shape[0], b.in(Op::x).shape[1], dy.shape[1]};
  return product(
      b, kernels::make_linear_grad_weight(shape, dy.dtype, b.out(Op::dweight).dtype, accumulates(b)),
      b.input<std::byte>(Op::dy), b.input<std::byte>(Op::x), nullptr, joined_output(b, b.record<Op>().parts));
}

Bound bind_linear_grad_bias(const Binding& b) {
  using Op = LinearGradBias;
  return with_gradient_types(b.in(Op::dy).dtype, b.out(Op::dbias).dtype, [&]<class T, class G>() {
    const auto dy = in_matrix<T>(b, Op::dy);
    const Vector<G> dbias{reinterpret_cast<G*>(joined_output(b, b.record<Op>().parts)), dy.cols};
    return launch(b, kernels::linear_grad_bias<T, G>, dy, dbias, accumulates(b));
  });
}

}  // namespace

std::vector<Note> product_notes(const Binding& b, const kernels::Gemm& gemm) {
  if (b.program.target == Target::cuda && !gemm.slow()) return {};
  return {{"products", gemm.implementation(), gemm.slow()}};
}

std::span<const KernelRow> linear_kernels() {
  static constexpr KernelRow rows[] = {
      {Linear::op, bind_linear, By::library},
      {LinearGradInput::op, bind_linear_grad_input, By::library},
      {LinearGradWeight::op, bind_linear_grad_weight, By::library},
      {LinearGradBias::op, bind_linear_grad_bias},
  };
  return rows;
}

}  // namespace ztrain::engine
