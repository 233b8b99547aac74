#pragma once
// What the check of placements knows of ops that compute: for every way in which the values of an op may be
// spread over the ranks of an axis, what comes out. Shares nothing with the pass that inserts conversions
// (passes/place.cpp) and its rows of the op table: a mistake there must not be repeated here.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// How the values of a tensor are spread over the ranks of one axis, as a letter: E, equal on all of them; P,
/// a part of a sum; a digit, each has its part of that dim; F, each has its shard of a unit's flat range; f,
/// a shard among the neighbours of MeshShape::inner alone; K, on its way round the ranks (RingCheck); '.',
/// nothing is known.
using Spread = char;
/// By axis.
using Spreads = std::array<Spread, axis_count>;
constexpr Spreads filled(Spread letter) {
  Spreads spreads{};
  spreads.fill(letter);
  return spreads;
}

/// "equal", "a part of a sum", "split along dim 0", ...
std::string words_for(Spread spread);

/// Inputs of an op that must be spread alike, such as joined weights.
using OperandGroups = std::vector<std::vector<TensorId>>;

/// Null where the table has no row for it: it communicates, or works on flat ranges.
struct ComputeRule {
  std::string_view op;
  /// "E00>1 ...": a letter for each group of inputs, and for each output; one output letter stands for all.
  /// An op with fewer groups is matched by the beginning of a way.
  std::string_view ways;
  /// Those over an axis that deals whole sequences: what belongs together is on one rank.
  std::string_view ways_of_sequences{};
};
const ComputeRule* find_compute_rule(const Op& op);

/// What it adds to is not among them.
OperandGroups operand_groups(const Op& op, const ComputeRule& rule);

/// The letters of the outputs for those of the groups, "" where no way over the axis takes these.
std::string_view outputs_of(const ComputeRule& rule, std::string_view inputs, Axis axis);

/// What the letters of the groups do not show: a bias that not just one rank adds to a sum, attention that
/// takes its part of the tokens for another, and dropout its columns. "" where nothing is wrong.
std::string part_fault(const Program& program, const Op& op, Axis axis, std::string_view inputs);

}  // namespace ztrain::program
