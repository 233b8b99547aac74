#include <cmath>

#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/attention.hpp"
#include "kernels/linear.hpp"

namespace ztrain::engine {
namespace {

/// The launch of a prepared product; std::function wants copyable captures.
Bound product(const Binding& b, std::unique_ptr<kernels::Gemm> gemm, const void* x, const void* y,
              const void* bias) {
  gemm->prepare(b.exec);
  return {[&exec = b.exec, g = std::shared_ptr<kernels::Gemm>(std::move(gemm)), x, y, bias,
           out = b.output<std::byte>(0),
           workspace = b.output<std::byte>(1)] { g->run(exec, x, y, bias, out, workspace); },
          nullptr};
}

template <class T>
kernels::AttentionInput<T> attention_input(const Binding& b, std::size_t document_start) {
  kernels::AttentionInput<T> input;
  const std::int64_t heads = b.op.attributes.integer("heads");
  input.shape = {b.in(0).shape[0], heads, b.op.attributes.integer("kv_heads"), b.in(0).shape[1] / heads,
                 b.op.attributes.integer("window", 0)};
  input.scale = 1.0 / std::sqrt(static_cast<double>(input.shape.head_dim));
  input.q = in_matrix<T>(b, 0);
  input.k = in_matrix<T>(b, 1);
  input.v = in_matrix<T>(b, 2);
  input.document_start = in_vector<std::int32_t>(b, document_start);
  return input;
}

}  // namespace

Bound bind_linear(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.in(1).shape[0]};
  const bool bias = b.op.inputs.size() > 2;
  return product(b, kernels::make_linear(shape, b.in(0).dtype, bias), b.input<std::byte>(0),
                 b.input<std::byte>(1), bias ? b.input<std::byte>(2) : nullptr);
}

Bound bind_linear_grad_input(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.in(1).shape[0]};
  return product(b, kernels::make_linear_grad_input(shape, b.in(0).dtype, accumulates(b)),
                 b.input<std::byte>(0), b.input<std::byte>(1), nullptr);
}

Bound bind_linear_grad_weight(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.in(0).shape[1]};
  return product(b, kernels::make_linear_grad_weight(shape, b.in(0).dtype, b.out(0).dtype, accumulates(b)),
                 b.input<std::byte>(0), b.input<std::byte>(1), nullptr);
}

Bound bind_linear_grad_bias(const Binding& b) {
  return with_gradient_types(b.in(0).dtype, b.out(0).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto dy = in_matrix<T>(b, 0);
    const auto db = out_vector<G>(b, 0);
    return {[&exec = b.exec, dy, db, add = accumulates(b)] {
              kernels::linear_grad_bias<T, G>(exec, dy, db, add);
            },
            nullptr};
  });
}

Bound bind_attention(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto input = attention_input<T>(b, 3);
    check(input);
    const auto o = out_matrix<T>(b, 0);
    const auto lse = out_matrix<acc_t<T>>(b, 1);
    return {[&exec = b.exec, input, o, lse] { kernels::attention_forward<T>(exec, input, o, lse); }, nullptr};
  });
}

Bound bind_attention_grad(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto input = attention_input<T>(b, 6);
    check(input);
    const auto o = in_matrix<T>(b, 3);
    const auto lse = in_matrix<acc_t<T>>(b, 4);
    const auto dout = in_matrix<T>(b, 5);
    const auto dq = out_matrix<T>(b, 0), dk = out_matrix<T>(b, 1), dv = out_matrix<T>(b, 2);
    const auto workspace = out_vector<std::byte>(b, 3);
    return {[&exec = b.exec, input, o, lse, dout, dq, dk, dv, workspace] {
              kernels::attention_backward<T>(exec, input, o, lse, dout, dq, dk, dv, workspace);
            },
            nullptr};
  });
}

}  // namespace ztrain::engine
