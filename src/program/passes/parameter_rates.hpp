#pragma once
// Which rates each parameter is stepped with.

#include "program/jobs/compile.hpp"
#include "program/ops/step_records.hpp"

namespace ztrain::program {

/// Sets pieces, lr_scales and weight_decays of an op that steps this rank's part of a unit.
void add_stepped_pieces(OptimizerStep& step, const Cut& cut, const UnitState& state, int unit,
                        const OptimizerSpec& optimizer);

/// Throws Error naming a pattern of groups or no_decay that matches no parameter.
void require_patterns_match(const model::Graph& graph, const OptimizerSpec& optimizer);

}  // namespace ztrain::program
