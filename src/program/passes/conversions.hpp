#pragma once
// Conversions between placements of a value on the ranks of an axis (program/passes/place.cpp inserts them).
// Each is the adjoint of another: Megatron's f and g and their likes for sequences (Shoeybi et al., 2019;
// Korthikanti et al., 2022).
//
//   copy_to_axis      invariant -> replicated    nothing           backward all-reduce
//   reduce_from_axis  partial   -> invariant     all-reduce        nothing
//   gather_from_axis  split(0)  -> replicated    all-gather        reduce-scatter
//   scatter_to_axis   partial   -> split(0)      reduce-scatter    all-gather
//   tokens_to_columns split(0)  -> split(1)      all-to-all        all-to-all
//   columns_to_tokens split(1)  -> split(0)      all-to-all        all-to-all
//
// The last two are those of DeepSpeed-Ulysses (Jacobs et al., 2023): attention by heads of tokens that are
// split.

#include "model/graph.hpp"
#include "program/ir/op_types.hpp"

namespace ztrain::program {

void reduce_from_axis_forward(Program& program, const Operands& operands, const model::Node& node);
void gather_from_axis_forward(Program& program, const Operands& operands, const model::Node& node);
void scatter_to_axis_forward(Program& program, const Operands& operands, const model::Node& node);
void tokens_to_columns_forward(Program& program, const Operands& operands, const model::Node& node);
void columns_to_tokens_forward(Program& program, const Operands& operands, const model::Node& node);

void copy_to_axis_adjoint(Tape& tape, const model::Node& node);
void gather_from_axis_adjoint(Tape& tape, const model::Node& node);
void scatter_to_axis_adjoint(Tape& tape, const model::Node& node);
void tokens_to_columns_adjoint(Tape& tape, const model::Node& node);
void columns_to_tokens_adjoint(Tape& tape, const model::Node& node);

}  // namespace ztrain::program
