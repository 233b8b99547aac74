#pragma once
// How values are spread over the ranks of an axis, as the check of placements follows them through a Program:
// through what computes by the ways of its row of the op table, which are proven by numbers
// (tests/mpi/ways.cpp).

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "program/ir/placement.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

/// unknown: of what nobody wrote yet. equal: the same on every rank. sum: a part of a sum. rows, columns:
/// each rank has its part of them. shard: each has its shard of a unit's flat range. inner_shard: a shard
/// among the neighbours of MeshShape::inner alone. around: on its way round the ranks (RingCheck).
enum class Spread : std::uint8_t { unknown, equal, sum, rows, columns, shard, inner_shard, around };

/// By axis.
using Spreads = std::array<Spread, axis_count>;
constexpr Spreads filled(Spread spread) {
  Spreads spreads{};
  spreads.fill(spread);
  return spreads;
}

/// Of what is cut along a dim.
Spread cut_along(int dim);

/// "the same on every rank", "a part of a sum", "split along dim 0", ...
std::string words_for(Spread spread);

/// What comes of an op over an axis, or why it is wrong.
struct Told {
  Spread spread;
  std::string fault{};
};

/// What comes out of an op that computes, by output, where its groups of operands are spread so over the
/// axis: one stands for all, and what lacks is not known. None where no way of the op takes these.
std::optional<std::vector<Spread>> outputs_of(const Op& op, const std::vector<Spread>& given, Axis axis);

/// What a collective over an axis that it spans makes of a value so spread. what: its name, for people; flat:
/// it is of a unit's flat range.
Told exchanged(const Program& program, const Op& op, Axis axis, Spread from, bool flat,
               const std::string& what);

/// What a way does not show: a bias that not just one rank adds to a sum, attention that takes its part of
/// the tokens for another, and dropout its columns. "" where nothing is wrong.
std::string part_fault(const Program& program, const Op& op, Axis axis, const std::vector<Spread>& given);

}  // namespace ztrain::program
