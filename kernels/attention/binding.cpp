#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/dispatch.hpp"
#include "kernel_interface/attention_work.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/attention_part.hpp"
#include "kernels/attention/attention_prepared.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/attention/rules.hpp"

namespace ztrain::engine {
namespace {

using program::AttentionMerge;
using program::AttentionPart;
using program::AttentionPartGrad;
using program::RingPart;

/// Views the op's layout, which lives as long as its Program.
BlockLayout layout_of(const Binding& b, const Attention& attention) {
  if (attention.layout.empty()) return {};
  return BlockLayout::of(b.op.attributes.get<std::vector<std::int64_t>>("layout"));
}

AttentionShape shape_of(const Binding& b) {
  const auto attention = b.record<Attention>();
  AttentionShape s = program::attention_shape(b.in(Attention::q).shape, attention);
  s.layout = layout_of(b, attention);
  return s;
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

Bound prepared(const Binding& b, kernels::Direction direction, std::int64_t workspace,
               const kernels::AttentionOperands& p) {
  const kernels::AttentionSpec spec{direction, shape_of(b), b.in(Attention::q).dtype, workspace};
  const std::shared_ptr<kernels::PreparedAttention> made = kernels::make_attention(b.exec, spec);
  return with_notes(launch(b, made, p), notes(b, spec, *made));
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
  return prepared(b, kernels::Direction::forward, bytes, p);
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
  return prepared(b, kernels::Direction::backward, elements(b.out(record.spare()).shape), p);
}

/// A run of the queries' tokens and one of the keys'. Rows of the one, and of the other.
struct Rectangle {
  TokenRun queries, keys;
  std::int64_t query_row = 0, key_row = 0;           ///< the first
  bool begins_queries = false, begins_keys = false;  ///< no other before it has these

  /// Whether some query sees a key.
  bool sees(std::int64_t window) const {
    return keys.token < queries.token + queries.count &&
           (window == 0 || keys.token + keys.count > queries.token - window + 1);
  }
};

/// Those in which something is seen, or made nothing.
std::vector<Rectangle> rectangles_of(const RingPart& part) {
  std::vector<Rectangle> all;
  std::int64_t query_row = 0;
  for (const TokenRun& queries : part.queries_at) {
    std::int64_t key_row = 0;
    for (const TokenRun& keys : part.keys_at) {
      const Rectangle r{queries, keys, query_row, key_row, key_row == 0, query_row == 0};
      if (r.begins_queries || r.begins_keys || r.sees(part.window)) all.push_back(r);
      key_row += keys.count;
    }
    query_row += queries.count;
  }
  return all;
}

template <class M>
M queries_of(const M& matrix, const Rectangle& r) {
  return rows_of(matrix, r.query_row, r.queries.count);
}
template <class M>
M keys_of(const M& matrix, const Rectangle& r) {
  return rows_of(matrix, r.key_row, r.keys.count);
}

template <class T>
kernels::AttentionInput<T> input_of(const Binding& b, std::size_t document_start, const Rectangle& r) {
  kernels::AttentionInput<T> input;
  input.q = queries_of(in_matrix<T>(b, AttentionPart::q), r);
  input.k = keys_of(in_matrix<T>(b, AttentionPart::k), r);
  input.v = keys_of(in_matrix<T>(b, AttentionPart::v), r);
  input.document_start = {in_vector<std::int32_t>(b, document_start).data + r.query_row, r.queries.count};
  const auto part = b.record<RingPart>();
  input.shape = program::attention_shape(b.in(AttentionPart::q).shape, part);
  input.shape.layout = layout_of(b, part);
  input.shape.tokens = r.queries.count;
  input.shape.keys = r.keys.count;
  input.shape.key_begin = r.keys.token;
  input.shape.first_query = r.queries.token - r.keys.token;
  return input;
}

/// cuDNN's attention is not asked for parts.
std::vector<Note> notes_of_part(const Binding& b, const char* direction) {
  if (b.program.target != Target::cuda) return {};
  const bool slow = size_of(b.in(AttentionPart::q).dtype) == 2;
  return {{"attention",
           fmt::format("{}of a part of the tokens: streaming kernels{}", direction,
                       slow ? " without tensor cores; cuDNN's are not used for parts yet" : ""),
           slow}};
}

Bound bind_attention_part(const Binding& b) {
  return with_type(b.in(AttentionPart::q).dtype, [&]<class T>() -> Bound {
    using A = acc_t<T>;
    struct Part {
      kernels::AttentionInput<T> input;
      kernels::AttentionSums<A> sums;
      bool resumes;
    };
    std::vector<Part> parts;
    for (const Rectangle& r : rectangles_of(b.record<RingPart>())) {
      const auto sums = [&](std::size_t i) { return queries_of(out_matrix<A>(b, i), r); };
      parts.push_back({input_of<T>(b, AttentionPart::document_start, r),
                       {sums(AttentionPart::out), sums(AttentionPart::maximum), sums(AttentionPart::sum)},
                       accumulates(b) || !r.begins_queries});
    }
    return {[&exec = b.exec, parts = std::move(parts)] {
              for (const Part& p : parts) kernels::attention_part<T>(exec, p.input, p.sums, p.resumes);
            },
            {},
            notes_of_part(b, "")};
  });
}

Bound bind_attention_merge(const Binding& b) {
  using Op = AttentionMerge;
  return with_type(b.out(Op::o).dtype, [&]<class T>() {
    using A = acc_t<T>;
    const kernels::AttentionSums<const A> sums{in_matrix<A>(b, Op::out), in_matrix<A>(b, Op::maximum),
                                               in_matrix<A>(b, Op::sum)};
    return launch(b, kernels::attention_merge<T>, sums, out_matrix<T>(b, Op::o), out_matrix<A>(b, Op::lse),
                  kernels::part_unit());
  });
}

Bound bind_attention_part_grad(const Binding& b) {
  using Op = AttentionPartGrad;
  return with_type(b.in(Op::q).dtype, [&]<class T>() -> Bound {
    using A = acc_t<T>;
    struct Part {
      kernels::AttentionInput<T> input;
      Matrix<const T> o, dout;
      Matrix<const A> lse;
      kernels::PartGradients<A> gradients;
    };
    std::vector<Part> parts;
    for (const Rectangle& r : rectangles_of(b.record<RingPart>()))
      parts.push_back(
          {input_of<T>(b, Op::document_start, r),
           queries_of(in_matrix<T>(b, Op::o), r),
           queries_of(in_matrix<T>(b, Op::dout), r),
           queries_of(in_matrix<A>(b, Op::lse), r),
           {queries_of(out_matrix<A>(b, Op::dq), r), keys_of(out_matrix<A>(b, Op::dk), r),
            keys_of(out_matrix<A>(b, Op::dv), r), accumulates(b) || !r.begins_queries, !r.begins_keys}});
    const auto workspace = out_vector<std::byte>(b, Op::workspace);
    return {[&exec = b.exec, parts = std::move(parts), workspace] {
              for (const Part& p : parts)
                kernels::attention_part_backward<T>(exec, p.input, p.o, p.lse, p.dout, p.gradients,
                                                    workspace);
            },
            {},
            notes_of_part(b, "backward: ")};
  });
}

Bound bind_cache_append(const Binding& b) {
  using Op = CacheAppend;
  return with_type(b.out(0).dtype, [&]<class T>() {
    return launch(b, kernels::cache_append<T>, in_matrix<T>(b, Op::rows),
                  in_vector<std::int32_t>(b, Op::begin), out_matrix<T>(b, Op::appended));
  });
}

Bound bind_attention_cached(const Binding& b) {
  using Op = AttentionCached;
  return with_type(b.in(Op::query).dtype, [&]<class T>() {
    kernels::CachedAttentionInput<T> input;
    input.shape = program::attention_shape(b.in(Op::query).shape, b.record<Op>());
    input.shape.layout = layout_of(b, b.record<Op>());
    input.q = in_matrix<T>(b, Op::query);
    input.k = in_matrix<T>(b, Op::k_cache);
    input.v = in_matrix<T>(b, Op::v_cache);
    input.begin = in_vector<std::int32_t>(b, Op::begin);
    if (b.op.inputs.size() > Op::sink_logits)
      input.sinks = {b.input<T>(Op::sink_logits) + b.record<Op>().first_sink, input.shape.heads};
    const auto o = out_matrix<T>(b, Op::o);
    kernels::check_cached<T>(input, o);
    return launch(b, kernels::attention_cached<T>, input, o);
  });
}

}  // namespace

std::span<const KernelRow> attention_kernels() {
  static constexpr KernelRow rows[] = {
      {Attention::op, bind_attention, By::library},
      {AttentionGrad::op, bind_attention_grad, By::library},
      {AttentionPart::op, bind_attention_part},
      {AttentionMerge::op, bind_attention_merge},
      {AttentionPartGrad::op, bind_attention_part_grad},
      {CacheAppend::op, bind_cache_append},
      {AttentionCached::op, bind_attention_cached},
  };
  return rows;
}

}  // namespace ztrain::engine
