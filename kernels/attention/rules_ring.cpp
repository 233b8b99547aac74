// Ring attention (Liu, Zaharia and Abbeel, 2023): each rank keeps its queries, and the keys and values of all
// go round the ranks, one place at a time, beside the attention to those that are there. What a query sums is
// kept in fp32 as the online softmax has it and rounded once (kernels/attention/attention_part.hpp). Backward
// asks for keys and values again, the other way round, so that their gradients, sums in fp32 to which each
// rank adds its part, follow them one place behind and come home. Shifts are issued before the attention that
// they go beside.
//
// Of a rank that has gathered the keys and values of all tokens the ring is one of itself alone: nothing
// goes round, and its queries, which are a part of the tokens in zig-zag order, attend to all of these.

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/sinks/rules.hpp"
#include "model/attention_span.hpp"
#include "program/ops/emit.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/tape.hpp"

namespace ztrain::program {
namespace {

/// Keys and values, or their gradients.
using Pair = std::array<TensorId, 2>;
constexpr Pair no_pair{no_tensor, no_tensor};
using Names = std::array<std::string_view, 2>;
constexpr Names of_keys{"k", "v"}, of_gradients{"dk", "dv"};

class Ring {
 public:
  Ring(Program& program, const model::Node& node, const Action& action, TensorId queries, TensorId keys)
      : program_(program),
        node_(node),
        action_(action),
        attention_(record_of<RingAttention>(node.attributes)),
        axes_(AxisSet::from_bits(static_cast<std::uint32_t>(attention_.axes))),
        ranks_(program.mesh.size(axes_)),
        index_(Coordinate(program.mesh, program.rank).index_in(axes_)),
        tokens_(program.tensor(keys).shape[0] * ranks_) {
    const Coordinate at(program.mesh, program.rank);
    const auto parts = static_cast<int>(tokens_ / program.tensor(queries).shape[0]);
    queries_at_ = program.token_order.part(tokens_, parts, ranks_ > 1 ? index_ : at.index_in(context_axes));
  }

  int ranks() const { return ranks_; }
  const Attention& attention() const { return attention_; }

  /// A tensor of the shape of another.
  TensorId like(std::string_view what, DType dtype, TensorId other) {
    return program_.add({.name = fmt::format("{}.{}.{}", node_.name, what, action_.micro),
                         .dtype = dtype,
                         .shape = program_.tensor(other).shape});
  }

  /// What the rank `by` places before this one has; 0 < by < ranks().
  void shift(TensorId from, TensorId to, int by) {
    emit_shift(program_, node_.name, from, to, axes_, by, action_);
    move_to_exchange(program_);
  }
  Pair shifted(const Names& names, const Pair& from, int by) {
    Pair to;
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = like(names[i], program_.tensor(from[i]).dtype, from[i]);
      shift(from[i], to[i], by);
    }
    return to;
  }

  /// With the keys of the rank `step` places before this one.
  template <class Record>
  Record part(int step, bool accumulate) const {
    Record record;
    static_cast<Attention&>(record) = without_sinks(attention_);
    record.ranks = ranks_;
    record.queries_at = queries_at_;
    record.keys_at = program_.token_order.part(tokens_, ranks_, (index_ + ranks_ - step) % ranks_);
    record.accumulate = accumulate;
    return record;
  }

  template <class Record>
  void emit(const Record& record, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    add_op(program_, record, node_.name, action_, std::move(inputs), std::move(outputs));
  }

 private:
  Program& program_;
  const model::Node& node_;
  Action action_;
  RingAttention attention_;
  AxisSet axes_;
  int ranks_, index_;
  std::int64_t tokens_;  ///< of all ranks
  std::vector<TokenRun> queries_at_;
};

void ring_attention_forward(Program& p, const Operands& operands, const model::Node& n) {
  const TensorId q = operands.inputs[AttentionPart::q];
  Ring ring(p, n, operands.action, q, operands.inputs[AttentionPart::k]);
  const TensorId o = operands.outputs[Attention::o], lse = operands.outputs[Attention::lse];
  const TensorId document_start = operands.inputs[AttentionPart::document_start];
  const DType wide = p.tensor(lse).dtype;
  const std::vector<TensorId> sums{ring.like("out", wide, q), ring.like("maximum", wide, lse),
                                   ring.like("sum", wide, lse)};
  Pair held{operands.inputs[AttentionPart::k], operands.inputs[AttentionPart::v]};
  for (int step = 0; step < ring.ranks(); ++step) {
    const Pair next = step + 1 < ring.ranks() ? ring.shifted(of_keys, held, 1) : no_pair;
    std::vector<TensorId> inputs{q, held[0], held[1], document_start};
    if (step > 0) inputs.insert(inputs.end(), sums.begin(), sums.end());
    ring.emit(ring.part<AttentionPart>(step, step > 0), std::move(inputs), sums);
    held = next;
  }
  ring.emit(AttentionMerge{}, sums, {o, lse});
  emit_sinks(p, operands, n, ring.attention());
}

/// The backward of one node, whose keys and values go round the other way.
class RingBackward {
 public:
  RingBackward(Tape& t, const model::Node& n)
      : t_(t),
        n_(n),
        ring_(t.program(), n, t.action(), t.tensor(n.inputs[Attention::q]), t.tensor(n.inputs[Attention::k])),
        lse_(t.tensor(n.outputs[Attention::lse])),
        wide_(t.info(lse_).dtype) {
    for (std::size_t i = 0; i < Pair{}.size(); ++i)
      if (t.wants(n.inputs[Attention::k + i])) wanted_.push_back(i);
  }

  void run() {
    t_.contribute(std::span(n_.inputs).first(3), [&](const std::vector<TensorId>& to) { run(to); });
  }

 private:
  /// targets: places for the gradients of queries, keys and values.
  void run(const std::vector<TensorId>& targets) {
    const DType narrow = t_.info(targets[0]).dtype;
    dq_ = narrow == wide_ ? targets[0] : ring_.like("dq", wide_, targets[0]);
    Pair totals = gradients();
    for (const std::size_t i : wanted_)
      if (narrow == wide_) totals[i] = targets[1 + i];
    add_up(totals);
    if (dq_ != targets[0]) ring_.emit(Cast{}, {dq_}, {targets[0]});
    for (const std::size_t i : wanted_)
      if (totals[i] != targets[1 + i]) ring_.emit(Cast{}, {totals[i]}, {targets[1 + i]});
  }

  int back() const { return ring_.ranks() - 1; }
  Pair own() const { return {t_.tensor(n_.inputs[Attention::k]), t_.tensor(n_.inputs[Attention::v])}; }

  void add_up(const Pair& totals) {
    if (ring_.ranks() == 1) return part(0, own(), totals);
    const Pair of_own = gradients();
    const Pair home = go_round(of_own);
    for (const std::size_t i : wanted_) ring_.emit(Add{}, {home[i], of_own[i]}, {totals[i]});
  }

  /// What the other ranks give to the gradients of this one's keys. Sums are sent from one place and arrive
  /// at another, and a part is made at a third: a part that took the place of what is being sent would wait
  /// for it.
  Pair go_round(const Pair& of_own) {
    const Pair made = gradients();
    Pair sum = gradients(), other = gradients();  // of the keys that are here
    Pair next = ring_.shifted(of_keys, own(), back());
    part(0, own(), of_own);
    for (int step = ring_.ranks() - 1; step > 0; --step) {
      const bool first = step + 1 == ring_.ranks();
      const Pair held = next;
      if (step > 1) next = ring_.shifted(of_keys, held, back());
      if (!first) send(sum, other);
      part(step, held, first ? sum : made);
      if (first) continue;
      for (const std::size_t i : wanted_) ring_.emit(Add{}, {other[i], made[i]}, {other[i]});
      std::swap(sum, other);
    }
    send(sum, other);
    return other;
  }

  void send(const Pair& sum, const Pair& to) {
    for (const std::size_t i : wanted_) ring_.shift(sum[i], to[i], back());
  }

  /// Places for those of keys and values.
  Pair gradients() {
    Pair pair;
    for (std::size_t i = 0; i < pair.size(); ++i)
      pair[i] = ring_.like(of_gradients[i], wide_, t_.tensor(n_.inputs[Attention::k + i]));
    return pair;
  }

  /// With the keys and values of the rank `step` places before this one.
  void part(int step, const Pair& held, const Pair& into) {
    Pair places = gradients();  // unwanted gradients go to buffers that nothing reads
    for (const std::size_t i : wanted_) places[i] = into[i];
    const TensorId q = t_.tensor(n_.inputs[Attention::q]);
    const Shape& rows = t_.info(lse_).shape;
    const TensorId workspace =
        t_.workspace(n_.name, attention_part_workspace_bytes(rows[0], rows[1], t_.info(q).dtype));
    std::vector<TensorId> inputs{q,
                                 held[0],
                                 held[1],
                                 t_.tensor(n_.outputs[Attention::o]),
                                 lse_,
                                 t_.gradient(n_.outputs[Attention::o]),
                                 t_.tensor(n_.inputs[AttentionPart::document_start])};
    if (step > 0) inputs.push_back(dq_);
    ring_.emit(ring_.part<AttentionPartGrad>(step, step > 0), std::move(inputs),
               {dq_, places[0], places[1], workspace});
  }

  Tape& t_;
  const model::Node& n_;
  Ring ring_;
  TensorId lse_;
  DType wide_;
  TensorId dq_ = no_tensor;
  std::vector<std::size_t> wanted_;  ///< of the gradients of keys and values
};

void ring_attention_adjoint(Tape& t, const model::Node& n) {
  sinks_adjoint(t, n, record_of<RingAttention>(n.attributes));
  RingBackward(t, n).run();
}

/// Of all keys, shared among the parts, which the order of tokens makes alike: exactly so where a micro-batch
/// is one sequence without a window.
double part_flops(const Program& p, const Op& op) {
  const auto part = record_of<RingPart>(op.attributes);
  const double tokens = dim(p, op.inputs[AttentionPart::q], 0);
  const auto keys = static_cast<std::int64_t>(dim(p, op.inputs[AttentionPart::k], 0));
  const std::int64_t sequence = part.sequence > 0 ? part.sequence : keys * part.ranks;
  return 4 * tokens * model::attention_span(sequence, part) * dim(p, op.inputs[AttentionPart::q], 1) /
         static_cast<double>(part.ranks);
}
double part_grad_flops(const Program& p, const Op& op) {
  return 2.5 * part_flops(p, op);
}

/// Heads, and where their sinks begin, over the tensor axis.
void fit_ring(model::Node& node, const PartOfNode& part) {
  edit<RingAttention>(node.attributes, [&](RingAttention& a) {
    fit_sinks(a, part);
    a.heads = a.heads * part.inputs[Attention::q].shape[1] / part.inputs[Attention::q].whole[1];
    a.kv_heads = a.kv_heads * part.inputs[Attention::k].shape[1] / part.inputs[Attention::k].whole[1];
  });
}

/// Keys are split over the axes of the ring alone; one without a ring attends to them all.
bool goes_round(const Attributes& a, AxisSet axes) {
  return (axes.bits() & ~static_cast<std::uint32_t>(record_of<RingAttention>(a).axes)) == 0;
}

constexpr Way ring_attention_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows, replicated}, {by_rows, by_rows}, {.of = goes_round}},
    {{by_rows, replicated, replicated, by_rows, replicated}, {by_rows, by_rows}},
    {{by_columns, by_columns, by_columns, replicated, by_rows}, {by_columns, by_columns}},
    {{by_columns, by_columns, by_columns, replicated, replicated}, {by_columns, by_columns}},
};

// Of keys that are a part of their sequence the check of placements keeps account (verify/ring_check.hpp).
constexpr Way part_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
    {{by_rows, replicated, replicated, by_rows}, {by_rows}},
    {{by_columns, by_columns, by_columns, replicated}, {by_columns}},
};

constexpr Way merge_ways[] = {
    {{by_rows, by_rows, by_rows}, {by_rows}},
    {{by_columns, by_columns, by_columns}, {by_columns}},
};

constexpr Way part_grad_ways[] = {
    {{by_rows, by_rows, by_rows, by_rows, by_rows, by_rows, by_rows}, {by_rows}, {.over = sequence_axes}},
    {{by_rows, replicated, replicated, by_rows, by_rows, by_rows, by_rows}, {by_rows, partial, partial}},
    {{by_columns, by_columns, by_columns, by_columns, by_columns, by_columns, replicated}, {by_columns}},
    {{replicated, replicated, replicated, replicated, replicated, partial, replicated}, {partial}},
};

}  // namespace

std::span<const OpType> attention_ring_ops() {
  static constexpr OpType rows[] = {
      {.record = record<RingAttention>(),
       .adjoint = ring_attention_adjoint,
       .ways = ring_attention_ways,
       .fit = fit_ring,
       .forward = ring_attention_forward},
      {.record = record<AttentionPart>(), .flops = part_flops, .ways = part_ways},
      {.record = record<AttentionMerge>(), .ways = merge_ways},
      {.record = record<AttentionPartGrad>(), .flops = part_grad_flops, .ways = part_grad_ways},
  };
  return rows;
}

}  // namespace ztrain::program
