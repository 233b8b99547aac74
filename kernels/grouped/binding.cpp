#include "engine/dispatch.hpp"
#include "kernels/grouped/grouped.hpp"
#include "kernels/grouped/record.hpp"

namespace ztrain::engine {
namespace {

/// The offsets are the second input of all of these ops.
constexpr std::size_t offsets_at = GroupedLinear::offsets;
static_assert(offsets_at == GroupedLinearGradInput::offsets && offsets_at == GroupedLinearGradBias::offsets &&
              offsets_at == GroupedLinearGradWeight::offsets);

/// Returns the launch of a product of input 0 and input `right`, which it prepares.
Bound product(const Binding& b, const std::shared_ptr<kernels::GroupedProduct>& product, std::size_t right,
              const void* bias = nullptr) {
  product->prepare(b.exec);
  const bool has_space = b.op.outputs.size() > 1;
  const kernels::GroupedOperands operands{b.input<std::int32_t>(offsets_at),
                                          b.input<std::byte>(0),
                                          b.input<std::byte>(right),
                                          bias,
                                          b.output<std::byte>(0),
                                          has_space ? b.output<std::byte>(1) : nullptr};
  Bound bound = launch(b, product, operands);
  if (b.program.target == Target::cpu || product->slow())
    bound.notes = {{"products of groups", product->implementation(), product->slow()}};
  return bound;
}

kernels::GroupedShape shape_of(const program::Tensor& rows, const program::Tensor& weight) {
  return {weight.shape[0], rows.shape[0], weight.shape[2], weight.shape[1]};
}

Bound bind_grouped_linear(const Binding& b) {
  using Op = GroupedLinear;
  const bool bias = b.op.inputs.size() > Op::bias && b.record<Op>().adds_bias != 0;
  const program::Tensor& x = b.in(Op::x);
  return product(b, kernels::make_grouped_linear(shape_of(x, b.in(Op::weight)), x.dtype, bias), Op::weight,
                 bias ? b.input<std::byte>(Op::bias) : nullptr);
}

Bound bind_grouped_grad_input(const Binding& b) {
  using Op = GroupedLinearGradInput;
  const program::Tensor& dy = b.in(Op::dy);
  return product(b,
                 kernels::make_grouped_grad_input(shape_of(dy, b.in(Op::weight)), dy.dtype, accumulates(b)),
                 Op::weight);
}

Bound bind_grouped_grad_weight(const Binding& b) {
  using Op = GroupedLinearGradWeight;
  const program::Tensor &dy = b.in(Op::dy), &dweight = b.out(Op::dweight);
  return product(
      b, kernels::make_grouped_grad_weight(shape_of(dy, dweight), dy.dtype, dweight.dtype, accumulates(b)),
      Op::x);
}

Bound bind_grouped_grad_bias(const Binding& b) {
  using Op = GroupedLinearGradBias;
  return with_gradient_types(b.in(Op::dy).dtype, b.out(Op::dbias).dtype, [&]<class T, class G>() {
    return launch(b, kernels::grouped_grad_bias<T, G>, in_matrix<T>(b, Op::dy),
                  b.input<std::int32_t>(offsets_at), out_matrix<G>(b, Op::dbias), accumulates(b));
  });
}

}  // namespace

std::span<const KernelRow> grouped_kernels() {
  static constexpr KernelRow rows[] = {
      {GroupedLinear::op, bind_grouped_linear},
      {GroupedLinearGradInput::op, bind_grouped_grad_input},
      {GroupedLinearGradWeight::op, bind_grouped_grad_weight},
      {GroupedLinearGradBias::op, bind_grouped_grad_bias},
  };
  return rows;
}

}  // namespace ztrain::engine
