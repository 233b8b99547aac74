#include <cmath>

#include "base/attention_work.hpp"
#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/attention_prepared.hpp"
#include "kernels/linear.hpp"
#include "program/attention_op.hpp"

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

/// What does not change from step to step; q is input 0.
kernels::AttentionSpec attention_spec(const Binding& b, kernels::Direction direction,
                                      std::int64_t workspace) {
  const AttentionShape shape = program::attention_shape(b.in(0).shape, b.op.attributes);
  return {direction, shape, 1.0 / std::sqrt(static_cast<double>(shape.head_dim)), b.in(0).dtype, workspace};
}

/// CPUs have one way of it.
std::vector<Note> notes(const Binding& b, const kernels::AttentionSpec& spec,
                        const kernels::PreparedAttention& prepared) {
  if (b.program.target != Target::cuda) return {};
  const bool forward = spec.direction == kernels::Direction::forward;
  std::vector<Note> notes{{"attention", (forward ? "" : "backward: ") + prepared.describe()}};
  if (lacks_documents(spec.shape, spec.type))
    notes.push_back({"attention",
                     "the number of documents in a sequence is not known: where it has a limit, "
                     "data.max_documents lets cuDNN take documents as they are packed"});
  return notes;
}

Bound attention(const Binding& b, const kernels::AttentionSpec& spec, const kernels::AttentionOperands& p) {
  std::shared_ptr<kernels::PreparedAttention> prepared = kernels::make_attention(b.exec, spec);
  return {[&exec = b.exec, prepared, p] { prepared->run(exec, p); }, nullptr, notes(b, spec, *prepared)};
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
  const bool workspace = b.op.outputs.size() > 2;
  kernels::AttentionOperands p;
  p.q = b.input<std::byte>(0);
  p.k = b.input<std::byte>(1);
  p.v = b.input<std::byte>(2);
  p.document_start = b.input<std::int32_t>(3);
  p.o = b.output<std::byte>(0);
  p.lse = b.output<std::byte>(1);
  if (workspace) p.workspace = b.output<std::byte>(2);
  const std::int64_t bytes = workspace ? elements(b.out(2).shape) : 0;
  return attention(b, attention_spec(b, kernels::Direction::forward, bytes), p);
}

Bound bind_attention_grad(const Binding& b) {
  kernels::AttentionOperands p;
  p.q = b.input<std::byte>(0);
  p.k = b.input<std::byte>(1);
  p.v = b.input<std::byte>(2);
  p.o = b.input<std::byte>(3);
  p.lse = b.input<std::byte>(4);
  p.dout = b.input<std::byte>(5);
  p.document_start = b.input<std::int32_t>(6);
  p.dq = b.output<std::byte>(0);
  p.dk = b.output<std::byte>(1);
  p.dv = b.output<std::byte>(2);
  p.workspace = b.output<std::byte>(3);
  return attention(b, attention_spec(b, kernels::Direction::backward, elements(b.out(3).shape)), p);
}

}  // namespace ztrain::engine
