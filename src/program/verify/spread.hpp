#pragma once
// The check of placements follows through a Program how each value is spread over the ranks of an axis. For
// an op that computes it uses the op's ways, most of which tests/mpi/ways.cpp proves by numbers.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "program/ir/placement.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

/// unknown: not written yet. equal: the same on every rank. sum: a term of a sum. rows, columns: split
/// along dim 0 or 1. inner: split along dim 2. shard: a shard of a unit's flat range. inner_shard: a shard
/// among the neighbours of MeshShape::inner alone. around: it is moving round the ranks (RingCheck).
/// at_experts, leaving, arrived: Placement's routed, to_members and from_members. terms: codes of all terms
/// of a sum, for this rank's shard. node_terms: codes of the terms of a node's sum, for the shards at its
/// place in all nodes. node_sum: the sum of node_terms.
enum class Spread : std::uint8_t {
  unknown,
  equal,
  sum,
  rows,
  columns,
  inner,
  shard,
  inner_shard,
  around,
  at_experts,
  leaving,
  arrived,
  terms,
  node_terms,
  node_sum
};

/// By axis.
using Spreads = std::array<Spread, axis_count>;
constexpr Spreads filled(Spread spread) {
  Spreads spreads{};
  spreads.fill(spread);
  return spreads;
}

/// Returns rows, columns or inner. dim: 0 to 2.
Spread cut_along(int dim);

/// "the same on every rank", "a part of a sum", "split along dim 0", ...
std::string words_for(Spread spread);

/// The spread after an op over an axis, or its fault.
struct Told {
  Spread spread;
  std::string fault{};
};

/// Returns the spread of each output of an op that computes, given that of each group of its operands. A
/// single entry stands for all; a missing one is unknown. Returns nullopt if no way of the op takes them.
std::optional<std::vector<Spread>> outputs_of(const Op& op, const std::vector<Spread>& given, Axis axis);

/// Returns the spread after a collective, or a sum of codes, over `axis`. what: the name of the value in
/// messages; flat: the value is a unit's flat range.
Told exchanged(const Program& program, const Op& op, Axis axis, Spread from, bool flat,
               const std::string& what);

/// Returns `spread` over these axes, and the same on every rank over the others.
Spreads equal_but(AxisSet among, Spread spread);

/// Whether a tensor holds numbers of the step that are kept.
inline bool is_number(const Tensor& t) {
  return t.persistent && t.base == no_tensor && t.category == Category::scalar;
}

/// Whether an op adds up codes or signs that ranks gave.
bool sums_codes(const Op& op);

/// Whether an op asks of a gradient no more than whether it is finite: it may be a term of a sum.
bool looks_at_terms(const Op& op);

/// Whether an op that communicates, or adds up what ranks gave, does so over the axis or a factor of it.
bool spans(const Op& op, Axis axis);

/// Returns how a message between stages says that its value is spread.
Spreads said_by(const Op& message);

/// Returns what the ways do not show, or "": a bias that no rank or several add to a sum, or attention or
/// dropout with constants of another part.
std::string part_fault(const Program& program, const Op& op, Axis axis, const std::vector<Spread>& given);

/// Returns what is wrong with a gradient that an optimizer or a norm reads, or "". shard: the axes over which
/// the reader has a shard of it alone.
std::string sum_fault(const ParameterPlace& p, Axis axis, Spread spread, AxisSet shard);

/// Returns what is wrong with an input of the ops that add up losses (StepPartials, ExpertsPartials,
/// PreferenceReport), or "". Each token's loss must be there once. Losses of experts and of pairs are of
/// whole micro-batches.
std::string loss_fault(const Op& op, std::size_t input, Axis axis, Spread spread);

}  // namespace ztrain::program
