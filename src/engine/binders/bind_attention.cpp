#include <array>
#include <cmath>
#include <cstdint>

#include "engine/binders/dispatch.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/attention_prepared.hpp"
#include "kernels/attention/cache_append.hpp"
#include "program/ops/attention_op.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::engine {
namespace {

using program::AttentionMerge;
using program::AttentionPart;
using program::AttentionPartGrad;
using program::RingPart;

AttentionShape shape_of(const Binding& b) {
  return program::attention_shape(b.in(Attention::q).shape, b.record<Attention>());
}

/// What does not change from step to step.
kernels::AttentionSpec attention_spec(const Binding& b, kernels::Direction direction,
                                      std::int64_t workspace) {
  const AttentionShape shape = shape_of(b);
  return {direction, shape, 1.0 / std::sqrt(static_cast<double>(shape.head_dim)), b.in(Attention::q).dtype,
          workspace};
}

/// Pointers to q, k and v, or to their gradients: the first three operands, or the columns of the first.
template <class Operand>
auto parts_of_attention(const Binding& b, const Operand& operand) {
  using Pointer = decltype(operand(0));
  const Pointer q = operand(Attention::q);
  if (!b.record<Attention>().joined)
    return std::array<Pointer, 3>{q, operand(Attention::k), operand(Attention::v)};
  const AttentionShape s = shape_of(b);
  const std::int64_t head = s.head_dim * size_of(b.in(Attention::q).dtype);
  return std::array<Pointer, 3>{q, q + s.heads * head, q + (s.heads + s.kv_heads) * head};
}

void take_qkv(const Binding& b, kernels::AttentionOperands& p) {
  const auto [q, k, v] = parts_of_attention(b, [&](std::size_t i) { return b.input<std::byte>(i); });
  p.q = q;
  p.k = k;
  p.v = v;
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

Bound prepared(const Binding& b, const kernels::AttentionSpec& spec, const kernels::AttentionOperands& p) {
  std::shared_ptr<kernels::PreparedAttention> made = kernels::make_attention(b.exec, spec);
  return {[&exec = b.exec, made, p] { made->run(exec, p); }, nullptr, notes(b, spec, *made)};
}

Bound bind_attention(const Binding& b) {
  const bool workspace = b.op.outputs.size() > Attention::workspace;
  kernels::AttentionOperands p;
  take_qkv(b, p);
  p.document_start = b.input<std::int32_t>(b.record<Attention>().document_start());
  p.o = b.output<std::byte>(Attention::o);
  p.lse = b.output<std::byte>(Attention::lse);
  if (workspace) p.workspace = b.output<std::byte>(Attention::workspace);
  const std::int64_t bytes = workspace ? elements(b.out(Attention::workspace).shape) : 0;
  return prepared(b, attention_spec(b, kernels::Direction::forward, bytes), p);
}

Bound bind_attention_grad(const Binding& b) {
  kernels::AttentionOperands p;
  take_qkv(b, p);
  const auto record = b.record<AttentionGrad>();
  p.o = b.input<std::byte>(record.attended());
  p.lse = b.input<std::byte>(record.log_sums());
  p.dout = b.input<std::byte>(record.dout());
  p.document_start = b.input<std::int32_t>(record.document_start());
  const auto [dq, dk, dv] = parts_of_attention(b, [&](std::size_t i) { return b.output<std::byte>(i); });
  p.dq = dq;
  p.dk = dk;
  p.dv = dv;
  p.workspace = b.output<std::byte>(record.spare());
  return prepared(b, attention_spec(b, kernels::Direction::backward, elements(b.out(record.spare()).shape)),
                  p);
}

/// Of the queries of one rank and the keys of another.
template <class T>
kernels::AttentionInput<T> input_of(const Binding& b, std::size_t document_start) {
  const auto part = b.record<RingPart>();
  kernels::AttentionInput<T> input;
  input.q = in_matrix<T>(b, AttentionPart::q);
  input.k = in_matrix<T>(b, AttentionPart::k);
  input.v = in_matrix<T>(b, AttentionPart::v);
  input.document_start = in_vector<std::int32_t>(b, document_start);
  input.shape = program::attention_shape(b.in(AttentionPart::q).shape, part);
  input.shape.keys = input.k.rows;
  input.shape.key_begin = part.keys_of * input.k.rows;
  input.shape.first_query = part.queries_of * input.shape.tokens - input.shape.key_begin;
  input.scale = 1.0 / std::sqrt(static_cast<double>(input.shape.head_dim));
  return input;
}

/// cuDNN's attention is not asked for parts of the keys.
std::vector<Note> notes_of_part(const Binding& b, const char* direction) {
  if (b.program.target != Target::cuda) return {};
  const bool slow = size_of(b.in(AttentionPart::q).dtype) == 2;
  return {{"attention",
           fmt::format("{}of keys that go round: streaming kernels{}", direction,
                       slow ? " without tensor cores; cuDNN's are not used for parts of the keys yet" : ""),
           slow}};
}

Bound bind_attention_part(const Binding& b) {
  return with_type(b.in(AttentionPart::q).dtype, [&]<class T>(Type<T>) -> Bound {
    using A = acc_t<T>;
    const auto input = input_of<T>(b, AttentionPart::document_start);
    const kernels::AttentionSums<A> sums{out_matrix<A>(b, AttentionPart::out),
                                         out_matrix<A>(b, AttentionPart::maximum),
                                         out_matrix<A>(b, AttentionPart::sum)};
    return {[&exec = b.exec, input, sums, resumes = accumulates(b)] {
              kernels::attention_part<T>(exec, input, sums, resumes);
            },
            nullptr, notes_of_part(b, "")};
  });
}

Bound bind_attention_merge(const Binding& b) {
  return with_type(b.out(AttentionMerge::o).dtype, [&]<class T>(Type<T>) -> Bound {
    using A = acc_t<T>;
    const kernels::AttentionSums<const A> sums{in_matrix<A>(b, AttentionMerge::out),
                                               in_matrix<A>(b, AttentionMerge::maximum),
                                               in_matrix<A>(b, AttentionMerge::sum)};
    const auto o = out_matrix<T>(b, AttentionMerge::o);
    const auto lse = out_matrix<A>(b, AttentionMerge::lse);
    return {[&exec = b.exec, sums, o, lse] { kernels::attention_merge<T>(exec, sums, o, lse); }, nullptr};
  });
}

Bound bind_attention_part_grad(const Binding& b) {
  using Op = AttentionPartGrad;
  return with_type(b.in(Op::q).dtype, [&]<class T>(Type<T>) -> Bound {
    using A = acc_t<T>;
    const auto input = input_of<T>(b, Op::document_start);
    const auto o = in_matrix<T>(b, Op::o), dout = in_matrix<T>(b, Op::dout);
    const auto lse = in_matrix<A>(b, Op::lse);
    const kernels::PartGradients<A> gradients{out_matrix<A>(b, Op::dq), out_matrix<A>(b, Op::dk),
                                              out_matrix<A>(b, Op::dv), accumulates(b)};
    const auto workspace = out_vector<std::byte>(b, Op::workspace);
    return {[&exec = b.exec, input, o, lse, dout, gradients, workspace] {
              kernels::attention_part_backward<T>(exec, input, o, lse, dout, gradients, workspace);
            },
            nullptr, notes_of_part(b, "backward: ")};
  });
}

Bound bind_cache_append(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto rows = in_matrix<T>(b, CacheAppend::rows);
    const auto begin = in_vector<std::int32_t>(b, CacheAppend::begin);
    const auto cache = out_matrix<T>(b, CacheAppend::appended);
    return {[&exec = b.exec, rows, begin, cache] { kernels::cache_append<T>(exec, rows, begin, cache); },
            nullptr};
  });
}

Bound bind_attention_cached(const Binding& b) {
  using Op = AttentionCached;
  const auto record = b.record<Op>();
  const Shape& q = b.in(Op::query).shape;
  return with_type(b.in(Op::query).dtype, [&]<class T>(Type<T>) -> Bound {
    kernels::CachedAttentionInput<T> input;
    input.shape = {q[0], record.heads, record.kv_heads, q[1] / record.heads, record.window};
    input.scale = 1.0 / std::sqrt(static_cast<double>(input.shape.head_dim));
    input.q = in_matrix<T>(b, Op::query);
    input.k = in_matrix<T>(b, Op::k_cache);
    input.v = in_matrix<T>(b, Op::v_cache);
    input.begin = in_vector<std::int32_t>(b, Op::begin);
    check(input);
    const auto o = out_matrix<T>(b, Op::o);
    return {[&exec = b.exec, input, o] { kernels::attention_cached<T>(exec, input, o); }, nullptr};
  });
}

}  // namespace

std::span<const KernelRow> attention_kernels() {
  static constexpr KernelRow rows[] = {
      {Attention::op, bind_attention},
      {AttentionGrad::op, bind_attention_grad},
      {AttentionPart::op, bind_attention_part},
      {AttentionMerge::op, bind_attention_merge},
      {AttentionPartGrad::op, bind_attention_part_grad},
      {CacheAppend::op, bind_cache_append},
      {AttentionCached::op, bind_attention_cached},
  };
  return rows;
}

}  // namespace ztrain::engine
