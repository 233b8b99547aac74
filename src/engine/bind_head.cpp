#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/head/head_loss.hpp"

namespace ztrain::engine {
namespace {

template <class T>
kernels::HeadLossInput<T> head_input(const Binding& b) {
  return {in_matrix<T>(b, 0), in_matrix<T>(b, 1), in_vector<std::int32_t>(b, 2), in_vector<float>(b, 3)};
}

kernels::HeadLossShape head_shape(const Binding& b) {
  return {b.in(0).shape[0], b.in(1).shape[0], b.in(1).shape[1]};
}

}  // namespace

Bound bind_head_loss(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto input = head_input<T>(b);
    const auto loss = out_vector<double>(b, 0);
    const auto workspace = out_vector<std::byte>(b, 1);
    const auto head = std::make_shared<kernels::HeadLoss<T>>(head_shape(b));
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, loss, workspace] { head->run(exec, input, loss, workspace); },
            nullptr, product_notes(b, head->product())};
  });
}

Bound bind_head_loss_grad(const Binding& b) {
  // A frozen weight has no gradient.
  using enum kernels::WeightGradient;
  const bool weight_grad = b.op.outputs.size() > 3;
  const auto weight_gradient = !weight_grad ? none : accumulates(b) ? add : write;
  const DType gradient = weight_grad ? b.out(3).dtype : b.in(0).dtype;
  return with_gradient_types(b.in(0).dtype, gradient, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto input = head_input<T>(b);
    const auto* scalars = b.input<StepScalars>(4);
    const auto loss = out_vector<double>(b, 0);
    const auto dh = out_matrix<T>(b, 1);
    const auto dw = weight_grad ? out_matrix<G>(b, 3) : Matrix<G>{};
    const auto workspace = out_vector<std::byte>(b, 2);
    auto head = std::make_shared<kernels::HeadLossGrad<T, G>>(head_shape(b), weight_gradient);
    head->prepare_products(b.exec);
    return {[&exec = b.exec, head, input, scalars, loss, dh, dw, workspace] {
              head->run(exec, input, scalars, loss, dh, dw, workspace);
            },
            nullptr, product_notes(b, head->product())};
  });
}

}  // namespace ztrain::engine
