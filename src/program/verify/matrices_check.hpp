#pragma once
// Checks how updates of matrices are spread between the halves of a step (program/passes/matrix_step.hpp).

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "kernels/elementwise/record.hpp"
#include "kernels/orthogonal/record.hpp"
#include "program/verify/spread.hpp"

namespace ztrain::program {

/// Returns the spread of a unit's elements that a rank steps: parts over axes that cut the unit's parameters
/// and, if the rank steps a shard, over axes that cut the unit.
inline Spreads spread_of_stepped(const Program& program, const Op& op) {
  const int unit = op.action.part;
  const std::int64_t stepped = op.type == ZeroGaps::op ? record_of<ZeroGaps>(op.attributes).gaps.front().count
                                                       : elements(program.tensor(op.inputs[0]).shape);
  const bool shard = stepped < program.unit_elements[at(unit)];
  Spreads spreads = equal_but(shard ? program.unit_cuts[at(unit)].shard_axes : AxisSet(), Spread::rows);
  for (const ParameterPlace& p : program.parameters)
    for (int a = 0; a < axis_count; ++a)
      if (p.unit == unit && p.split_along(static_cast<Axis>(a))) spreads[at(a)] = Spread::rows;
  return spreads;
}

/// Returns the spread of the output of Orthogonalise. The matrices must be whole; over the axes of the op,
/// each matrix is in the output of one rank.
inline Told orthogonalised(const Program& program, const Op& op, Axis axis, Spread from) {
  if (AxisSet::from_bits(static_cast<std::uint32_t>(record_of<Orthogonalise>(op.attributes).over))
          .contains(axis))
    return from == Spread::equal ? Told{Spread::sum} : Told{from, "its matrices were not gathered"};
  const bool cut = program.unit_cuts[at(op.action.part)].shard_axes.contains(axis) ||
                   std::ranges::any_of(program.parameters, [&](const ParameterPlace& p) {
                     return p.unit == op.action.part && p.cuts_matrices(axis);
                   });
  if (from == Spread::equal || (from == Spread::rows && !cut)) return {from};
  return {from, fmt::format("its matrices are not whole: they are {}", words_for(from))};
}

/// Returns the spread of the update that the second half of a step takes: that of the elements it moves.
inline Told moved(const Program& program, const Op& op, Axis axis, Spread from) {
  const Spread wanted = spread_of_stepped(program, op)[at(axis)];
  if (from == wanted) return {from};
  return {from, fmt::format("the update is {}, and what it moves is {}", words_for(from), words_for(wanted))};
}

}  // namespace ztrain::program
