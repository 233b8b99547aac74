#include <array>
#include <cmath>
#include <cstdint>

#include "base/error.hpp"
#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/attention/attention_prepared.hpp"
#include "kernels/gemm/linear.hpp"
#include "program/ir/attention_op.hpp"

namespace ztrain::engine {
namespace {

/// The launch of a prepared product; std::function wants copyable captures.
Bound product(const Binding& b, std::unique_ptr<kernels::Gemm> gemm, const void* x, const void* y,
              const void* bias, void* out) {
  const auto aligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool all = aligned(x) && aligned(y) && aligned(bias) && aligned(out);
  gemm->prepare(b.exec, all ? kernels::Starts::aligned : kernels::Starts::anywhere);
  std::vector<Note> notes = product_notes(b, *gemm);
  return {[&exec = b.exec, g = std::shared_ptr<kernels::Gemm>(std::move(gemm)), x, y, bias, out,
           workspace = b.output<std::byte>(b.op.outputs.size() - 1)] {
            g->run(exec, x, y, bias, out, workspace);
          },
          nullptr, std::move(notes)};
}

/// What does not change from step to step; q is input 0.
kernels::AttentionSpec attention_spec(const Binding& b, kernels::Direction direction,
                                      std::int64_t workspace) {
  const AttentionShape shape = program::attention_shape(b.in(0).shape, b.op.attributes);
  return {direction, shape, 1.0 / std::sqrt(static_cast<double>(shape.head_dim)), b.in(0).dtype, workspace};
}

/// Pointers to q, k and v, or to their gradients: the first three operands, or the columns of the first.
template <class Operand>
auto parts_of_attention(const Binding& b, const Operand& operand) {
  using Pointer = decltype(operand(0));
  const Pointer q = operand(0);
  if (!program::holds_all(b.op.attributes)) return std::array<Pointer, 3>{q, operand(1), operand(2)};
  const AttentionShape s = program::attention_shape(b.in(0).shape, b.op.attributes);
  const std::int64_t head = s.head_dim * size_of(b.in(0).dtype);
  return std::array<Pointer, 3>{q, q + s.heads * head, q + (s.heads + s.kv_heads) * head};
}

/// The number of the input behind q, k and v.
std::size_t take_qkv(const Binding& b, kernels::AttentionOperands& p) {
  const auto [q, k, v] = parts_of_attention(b, [&](std::size_t i) { return b.input<std::byte>(i); });
  p.q = q;
  p.k = k;
  p.v = v;
  return program::holds_all(b.op.attributes) ? 1 : 3;
}

/// Where the operands from `first` on begin; they follow one another in memory.
template <class Operand, class Info>
auto joined(const Binding& b, std::size_t first, const Operand& operand, const Info& info) {
  const auto parts = static_cast<std::size_t>(b.op.attributes.integer("parts", 1));
  for (std::size_t i = first + 1; i < first + parts; ++i)
    ASSERT(operand(i) == operand(i - 1) + info(i - 1).bytes(), "{}: '{}' does not follow '{}' in memory",
           b.op.name, info(i).name, info(i - 1).name);
  return operand(first);
}
const std::byte* joined_input(const Binding& b, std::size_t first) {
  return joined(
      b, first, [&](std::size_t i) { return b.input<std::byte>(i); },
      [&](std::size_t i) -> const program::Tensor& { return b.in(i); });
}
std::byte* joined_output(const Binding& b) {
  return joined(
      b, 0, [&](std::size_t i) { return b.output<std::byte>(i); },
      [&](std::size_t i) -> const program::Tensor& { return b.out(i); });
}

/// CPUs have one way of it.
std::vector<Note> notes(const Binding& b, const kernels::AttentionSpec& spec,
                        const kernels::PreparedAttention& prepared) {
  if (b.program.target != Target::cuda) return {};
  const bool forward = spec.direction == kernels::Direction::forward;
  std::vector<Note> notes{
      {"attention", (forward ? "" : "backward: ") + prepared.describe(), prepared.slow()}};
  if (lacks_documents(spec.shape, spec.type, !forward))
    notes.push_back(
        {"attention",
         fmt::format("{}the number of documents in a sequence is not known: a data.max_documents of "
                     "at most {} lets cuDNN 9.25 and later take documents as they are packed",
                     forward ? "" : "backward: ", attention_most_ragged_entries - 1)});
  return notes;
}

Bound attention(const Binding& b, const kernels::AttentionSpec& spec, const kernels::AttentionOperands& p) {
  std::shared_ptr<kernels::PreparedAttention> prepared = kernels::make_attention(b.exec, spec);
  return {[&exec = b.exec, prepared, p] { prepared->run(exec, p); }, nullptr, notes(b, spec, *prepared)};
}

}  // namespace

std::vector<Note> product_notes(const Binding& b, const kernels::Gemm& gemm) {
  if (b.program.target == Target::cuda && !gemm.slow()) return {};
  return {{"products", gemm.implementation(), gemm.slow()}};
}

Bound bind_linear(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.out(0).shape[1]};
  const std::size_t biases = 1 + static_cast<std::size_t>(b.op.attributes.integer("parts", 1));
  const bool bias = b.op.inputs.size() > biases && b.op.attributes.integer("adds_bias", 1) != 0;
  return product(b, kernels::make_linear(shape, b.in(0).dtype, bias), b.input<std::byte>(0),
                 joined_input(b, 1), bias ? joined_input(b, biases) : nullptr, b.output<std::byte>(0));
}

Bound bind_linear_grad_input(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.in(0).shape[1]};
  return product(b, kernels::make_linear_grad_input(shape, b.in(0).dtype, accumulates(b)),
                 b.input<std::byte>(0), joined_input(b, 1), nullptr, b.output<std::byte>(0));
}

Bound bind_linear_grad_weight(const Binding& b) {
  const kernels::LinearShape shape{b.in(0).shape[0], b.in(1).shape[1], b.in(0).shape[1]};
  return product(b, kernels::make_linear_grad_weight(shape, b.in(0).dtype, b.out(0).dtype, accumulates(b)),
                 b.input<std::byte>(0), b.input<std::byte>(1), nullptr, joined_output(b));
}

Bound bind_linear_grad_bias(const Binding& b) {
  return with_gradient_types(b.in(0).dtype, b.out(0).dtype, [&]<class T, class G>(Type<T>, Type<G>) -> Bound {
    const auto dy = in_matrix<T>(b, 0);
    const Vector<G> db{reinterpret_cast<G*>(joined_output(b)), dy.cols};
    return {[&exec = b.exec, dy, db, add = accumulates(b)] {
              kernels::linear_grad_bias<T, G>(exec, dy, db, add);
            },
            nullptr};
  });
}

Bound bind_attention(const Binding& b) {
  const bool workspace = b.op.outputs.size() > 2;
  kernels::AttentionOperands p;
  const std::size_t last = take_qkv(b, p);
  p.document_start = b.input<std::int32_t>(last);
  p.o = b.output<std::byte>(0);
  p.lse = b.output<std::byte>(1);
  if (workspace) p.workspace = b.output<std::byte>(2);
  const std::int64_t bytes = workspace ? elements(b.out(2).shape) : 0;
  return attention(b, attention_spec(b, kernels::Direction::forward, bytes), p);
}

Bound bind_attention_grad(const Binding& b) {
  kernels::AttentionOperands p;
  const std::size_t next = take_qkv(b, p);
  p.o = b.input<std::byte>(next);
  p.lse = b.input<std::byte>(next + 1);
  p.dout = b.input<std::byte>(next + 2);
  p.document_start = b.input<std::int32_t>(next + 3);
  const auto [dq, dk, dv] = parts_of_attention(b, [&](std::size_t i) { return b.output<std::byte>(i); });
  p.dq = dq;
  p.dk = dk;
  p.dv = dv;
  p.workspace = b.output<std::byte>(next);
  return attention(b, attention_spec(b, kernels::Direction::backward, elements(b.out(next).shape)), p);
}

}  // namespace ztrain::engine
