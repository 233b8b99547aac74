#pragma once
// Conversions between placements of a value on the ranks of an axis (program/passes/place.cpp inserts them).
// Each is the adjoint of another: Megatron's f and g and their likes for sequences (Shoeybi et al., 2019;
// Korthikanti et al., 2022).
//
//   copy_to_axis      invariant -> replicated    nothing           backward all-reduce
//   reduce_from_axis  partial   -> invariant     all-reduce        nothing
//   gather_from_axis  split(0)  -> replicated    all-gather        reduce-scatter
//   scatter_to_axis   partial   -> split(0)      reduce-scatter    all-gather

#include "model/graph.hpp"
#include "program/ir/op_types.hpp"

namespace ztrain::program {

void reduce_from_axis_forward(Program& program, const Operands& operands, const model::Node& node);
void gather_from_axis_forward(Program& program, const Operands& operands, const model::Node& node);
void scatter_to_axis_forward(Program& program, const Operands& operands, const model::Node& node);

void copy_to_axis_adjoint(Tape& tape, const model::Node& node);
void gather_from_axis_adjoint(Tape& tape, const model::Node& node);
void scatter_to_axis_adjoint(Tape& tape, const model::Node& node);

}  // namespace ztrain::program
