#pragma once
// Weights that are computed with as 8-bit codes: each rank quantises what it steps, and gathers move bytes.
// The scales are whole on every rank, and refreshed with the codes where the weights changed: at the end of a
// step and of `load`.

#include "program/passes/shard.hpp"
#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Adds the scales, fp32 [1] or [rows of the weight], as persistent tensors. By parameter; none where it has
/// none.
std::vector<TensorId> add_weight_scales(Program& program, const model::Graph& graph);

struct CodedUnits {
  ActionKind action = ActionKind::load;
  bool trained = true;  ///< those that are, or those that are not: they have nothing to do with each other
};

/// Appends for such units at once: the largest magnitude of every row that this rank has some of, their
/// exchange over the shard group and the parts of cut layers, the scales, the codes, and their gather where
/// codes are kept whole. Nothing where no weight is coded.
void append_weight_codes(Program& program, const Cut& cut, const JobTensors& tensors, CodedUnits which);

}  // namespace ztrain::program
