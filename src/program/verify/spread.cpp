#include "program/verify/spread.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/embedding/record.hpp"
#include "kernels/experts/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/grouped/record.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/load/record.hpp"
#include "kernels/preference/record.hpp"
#include "kernels/signs/record.hpp"
#include "kernels/sinks/record.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::program {
namespace {

Spread spread_of(const Placement& p) {
  switch (p.kind) {
    case Placement::Kind::split:
      return cut_along(p.dim);
    case Placement::Kind::partial:
      return Spread::sum;
    case Placement::Kind::routed:
      return Spread::at_experts;
    case Placement::Kind::to_members:
      return Spread::leaving;
    case Placement::Kind::from_members:
      return Spread::arrived;
    case Placement::Kind::nothing:
      return Spread::unknown;
    default:
      return Spread::equal;
  }
}

bool takes(const Way& way, const std::vector<Spread>& given) {
  if (way.inputs.size() < given.size()) return false;
  for (std::size_t g = 0; g < given.size(); ++g)
    if (spread_of(way.inputs[g]) != given[g]) return false;
  return true;
}

/// Returns what is wrong with the mask of a part of the tokens, which the tensor axis may cut again. index:
/// over the axes of tokens.
std::string fault_of_mask(const Program& program, const Op& op, int index) {
  const auto mask = record_of<Dropout>(op.attributes);
  const Tensor& x = program.tensor(op.inputs[Dropout::x]);
  const Coordinate at(program.mesh, program.rank);
  const std::int64_t rows = x.shape[0], part = mask.part_of / program.token_order.ranks();
  if (part < rows) return fmt::format("'{}' is masked as tokens of {}", x.name, mask.part_of);
  const std::int64_t begin = index * part + (rows < part ? at[Axis::tensor] * rows : 0);
  const std::vector<TokenRun> held = program.token_order.runs(mask.part_of, begin, begin + rows);
  const std::int64_t of_others =
      op.action.micro * program.mesh.size(sequence_axes) + at.index_in(sequence_axes);
  const std::int64_t counted = program.tokens > 0 ? program.tokens : mask.part_of;  // of a micro-batch
  std::vector<TokenRun> taken{{mask.first_token - of_others * counted, rows}};
  if (mask.gap > 0) {
    taken[0].count = mask.gap_at;
    taken.push_back({taken[0].token + mask.gap_at + mask.gap, rows - mask.gap_at});
  }
  if (taken == held) return "";
  return fmt::format("'{}' is tokens {}, and is masked as {}", x.name, ztrain::to_string(held),
                     ztrain::to_string(taken));
}

/// Returns what is wrong with a part of the queries, which attend to all keys at once. index: of the part.
std::string fault_of_queries(const Program& program, const Op& op, int index) {
  const auto part = record_of<RingPart>(op.attributes);
  const Tensor& q = program.tensor(op.inputs[AttentionPart::q]);
  const Tensor& k = program.tensor(op.inputs[AttentionPart::k]);
  const std::int64_t rows = q.shape[0], all = k.shape[0];
  if (part.accumulate) return fmt::format("'{}' attends to keys of which it has all already", q.name);
  const auto compare = [](const Tensor& t, const std::vector<TokenRun>& held,
                          const std::vector<TokenRun>& said) {
    return said == held ? std::string()
                        : fmt::format("'{}' is tokens {}, and taken for {}", t.name, ztrain::to_string(held),
                                      ztrain::to_string(said));
  };
  const std::string fault =
      compare(q, program.token_order.runs(all, index * rows, (index + 1) * rows), part.queries_at);
  return fault.empty() ? compare(k, program.token_order.runs(all, 0, all), part.keys_at) : fault;
}

/// Returns what is wrong with the sinks of some heads, or "". Each rank has the sinks of all heads.
template <class Record>
std::string fault_of_sinks(const Program& program, const Op& op, int index) {
  const std::int64_t first = record_of<Record>(op.attributes).first;
  const std::int64_t heads = program.tensor(op.inputs[Record::lse]).shape[1];
  if (first == index * heads) return "";
  return fmt::format("'{}' is the part {} of heads, {} each, and is given sinks from {} on",
                     program.tensor(op.inputs[Record::o]).name, index, heads, first);
}

}  // namespace

Spread cut_along(int dim) {
  ASSERT(dim >= 0 && dim <= 2, "no tensor is split along dim {}", dim);
  return dim == 0 ? Spread::rows : dim == 1 ? Spread::columns : Spread::inner;
}

std::string words_for(Spread spread) {
  switch (spread) {
    case Spread::equal:
      return "the same on every rank";
    case Spread::sum:
      return "a part of a sum";
    case Spread::shard:
    case Spread::inner_shard:
      return "a shard";
    case Spread::around:
      return "of other ranks' tokens, or of some ranks alone";
    case Spread::at_experts:
      return "rows of each rank's experts";
    case Spread::leaving:
      return "rows for other ranks";
    case Spread::arrived:
      return "rows of other ranks";
    case Spread::terms:
      return "the codes of all terms of a shard's sum";
    case Spread::node_terms:
      return "the codes of the terms of a node's sum";
    case Spread::node_sum:
      return "a node's part of a sum";
    case Spread::unknown:
      return "nothing yet";
    case Spread::rows:
      return "split along dim 0";
    case Spread::columns:
      return "split along dim 1";
    case Spread::inner:
      return "split along dim 2";
  }
  return "";
}

std::optional<std::vector<Spread>> outputs_of(const Op& op, const std::vector<Spread>& given, Axis axis) {
  for (const Way& way : op_type(op.type).ways) {
    const bool fits =
        way.allows(op.attributes, axis) && (way.when.says == nullptr || way.when.says(op.attributes));
    if (!fits || !takes(way, given)) continue;
    std::vector<Spread> outputs;
    for (const Placement& p : way.outputs) outputs.push_back(spread_of(p));
    return outputs;
  }
  const bool equal = std::ranges::all_of(given, [](Spread s) { return s == Spread::equal; });
  return equal ? std::optional(std::vector{Spread::equal}) : std::nullopt;
}

namespace {

AxisSet axes_of(const Op& op) {
  const auto from = [](std::int64_t bits) { return AxisSet::from_bits(static_cast<std::uint32_t>(bits)); };
  if (op.type == SumSigns::op) return from(record_of<SumSigns>(op.attributes).axes);
  return op.type == SumCodes::op ? from(record_of<SumCodes>(op.attributes).axes) : op.comm.axes;
}

}  // namespace

bool sums_codes(const Op& op) {
  return op.type == SumCodes::op || op.type == SumSigns::op;
}

bool looks_at_terms(const Op& op) {
  return op.type == SumSquares::op && record_of<SumSquares>(op.attributes).of_terms;
}

bool spans(const Op& op, Axis axis) {
  const AxisSet axes = axes_of(op);
  return axes.contains(axis) || axes.contains_inner(axis) || axes.contains_outer(axis);
}

Told exchanged(const Program& program, const Op& op, Axis axis, Spread from, bool flat,
               const std::string& what) {
  const auto wrong = [&](const char* does) {
    return Told{from, fmt::format("it {} {}, which is {}", does, what, words_for(from))};
  };
  if (sums_codes(op)) {
    const bool of_node = axes_of(op).contains_inner(axis);
    if (from != (of_node ? Spread::node_terms : Spread::terms)) return wrong("adds up codes of");
    return {of_node ? Spread::node_sum : Spread::shard};
  }
  switch (op.comm.kind) {
    case CommKind::all_gather: {
      const bool inner = axis == Axis::shard && !op.comm.axes.contains(axis) &&
                         program.mesh.inner_of(axis) < program.mesh[axis];
      const Spread wanted = inner ? Spread::inner_shard : flat ? Spread::shard : Spread::rows;
      if (from == wanted || (!flat && from == Spread::shard)) return {Spread::equal};
      return wrong("gathers");
    }
    case CommKind::reduce_scatter:
    case CommKind::all_reduce:
      if (from != Spread::sum) return wrong("adds up");
      return {op.comm.kind == CommKind::all_reduce ? Spread::equal : flat ? Spread::shard : Spread::rows};
    case CommKind::all_to_all:
      if (!flat && from == Spread::rows) return {Spread::columns};
      if (!flat && from == Spread::columns) return {Spread::rows};
      if (flat && from == (op.comm.axes.contains_outer(axis) ? Spread::node_sum : Spread::sum))
        return {op.comm.axes.contains_inner(axis) ? Spread::node_terms : Spread::terms};
      return wrong("exchanges tokens and columns of");
    case CommKind::all_to_all_rows:
      if (from == Spread::leaving) return {Spread::arrived};
      if (from == Spread::arrived) return {Spread::leaving};
      return wrong("exchanges rows for experts of");
    case CommKind::shift:
      return wrong("moves the tokens of");
    default:
      fail("the check of placements has no rule for {}", name_of(op.comm.kind));
  }
}

Spreads equal_but(AxisSet among, Spread spread) {
  Spreads spreads = filled(Spread::equal);
  for (int a = 0; a < axis_count; ++a)
    if (among.contains(static_cast<Axis>(a))) spreads[at(a)] = spread;
  return spreads;
}

Spreads said_by(const Op& message) {
  const auto over = [&](const char* key) {
    return AxisSet::from_bits(static_cast<std::uint32_t>(message.attributes.integer(key, 0)));
  };
  Spreads said = equal_but(over("split_over"), Spread::rows);
  for (int a = 0; a < axis_count; ++a)
    if (over("partial_over").contains(static_cast<Axis>(a))) said[at(a)] = Spread::sum;
  return said;
}

std::string sum_fault(const ParameterPlace& p, Axis axis, Spread spread, AxisSet shard) {
  const Spread whole = p.split_along(axis) ? cut_along(p.split) : Spread::equal;
  if (!p.trainable || spread == whole || (spread == Spread::shard && shard.contains(axis))) return "";
  return fmt::format("the gradient of {} is {} where it must be {}: a reduction is missing or one too many",
                     p.name, words_for(spread), words_for(whole));
}

std::string loss_fault(const Op& op, std::size_t input, Axis axis, Spread spread) {
  const bool of_experts = op.type == ExpertsPartials::op, of_pairs = op.type == PreferenceReport::op;
  const bool is_loss = of_pairs || input < at(op.attributes.integer("losses"));
  if (!is_loss && !of_experts) return "";
  const bool of_tokens = of_pairs && record_of<PreferenceReport>(op.attributes).of_tokens;
  const bool whole =
      of_experts || (of_pairs && !of_tokens) || op.attributes.integer("of_micro_batches", 0) != 0;
  const bool sums = is_loss && (whole ? sequence_axes : token_axes).contains(axis);
  const Spread wanted = sums ? Spread::sum : Spread::equal;
  if (spread == wanted) return "";
  return fmt::format("{} {}, not {}", is_loss ? "the loss is" : "the counts of experts are",
                     words_for(spread), words_for(wanted));
}

std::string part_fault(const Program& program, const Op& op, Axis axis, const std::vector<Spread>& given) {
  const int index = Coordinate(program.mesh, program.rank)[axis];
  const bool to_a_sum =
      given.back() == Spread::equal && (given[0] == Spread::sum || given[0] == Spread::columns);
  const bool coded = op.type == LinearFp8::op && given.size() == 5,
             grouped = op.type == GroupedLinear::op && given.size() == 4;
  if (to_a_sum && (coded || grouped || (op.type == Linear::op && given.size() == 3))) {
    const std::int64_t adds = coded     ? record_of<LinearFp8>(op.attributes).adds_bias
                              : grouped ? record_of<GroupedLinear>(op.attributes).adds_bias
                                        : record_of<Linear>(op.attributes).adds_bias;
    if (adds == (index == 0 ? 1 : 0)) return "";
    return fmt::format("'{}' is added {}", program.tensor(op.inputs.back()).name,
                       index == 0 ? "by no rank" : "more than once");
  }
  if (op.type == RouterSums::op && given[0] == Spread::rows && given[2] == Spread::equal) {
    const std::int64_t begin = index * program.tensor(op.inputs[RouterSums::logits]).shape[0];
    return record_of<RouterSums>(op.attributes).first_weight == begin
               ? ""
               : fmt::format("'{}' is taken for weights of other tokens", program.tensor(op.inputs[2]).name);
  }
  if (op.type == Dropout::op && given[0] == Spread::columns) {
    const auto mask = record_of<Dropout>(op.attributes);
    const Tensor& x = program.tensor(op.inputs[Dropout::x]);
    const std::int64_t own = x.shape[1], ranks = program.mesh[axis];
    // Parts may differ in size, and none is empty: each other rank has a column before these or behind.
    const std::int64_t least = index, most = mask.columns - own - (ranks - 1 - index);
    const bool begins = index > 0 || mask.first_column == 0;
    const bool ends = index < ranks - 1 || mask.first_column == most;
    if (begins && ends && least <= mask.first_column && mask.first_column <= most) return "";
    return fmt::format("'{}' is {} columns, of part {} of {}, and is masked as those from {} on of {}",
                       x.name, own, index, ranks, mask.first_column, mask.columns);
  }
  if (op.type == Dropout::op && given[0] == Spread::rows && context_axes.contains(axis))
    return fault_of_mask(program, op, Coordinate(program.mesh, program.rank).index_in(context_axes));
  if (op.type == Embedding::op && given[0] == Spread::equal && given[1] != Spread::rows &&
      record_of<Embedding>(op.attributes).rows > 0)
    return fmt::format("some rows are looked up in '{}', which is {}", program.tensor(op.inputs[1]).name,
                       words_for(given[1]));
  if (given[0] == Spread::columns && given.back() == Spread::equal) {
    if (op.type == AttentionSinks::op) return fault_of_sinks<AttentionSinks>(program, op, index);
    if (op.type == AttentionSinksGrad::op) return fault_of_sinks<AttentionSinksGrad>(program, op, index);
  }
  const bool attends = op.type == Attention::op || op.type == AttentionGrad::op;
  if (attends && context_axes.contains(axis) && program.token_order.groups() > 1)
    return fmt::format("tokens are attended to as they are, and ranks have them in {} groups",
                       program.token_order.groups());
  const bool part = op.type == AttentionPart::op || op.type == AttentionPartGrad::op;
  return part && given[0] == Spread::rows && given[1] == Spread::equal ? fault_of_queries(program, op, index)
                                                                       : "";
}

}  // namespace ztrain::program
