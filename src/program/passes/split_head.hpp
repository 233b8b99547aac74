#pragma once
// The head and its loss where each rank of an axis has some words of the vocabulary (kernels/head/
// head_split.hpp): per chunk of tokens, this rank's logits, an exchange of three numbers a token, and what
// follows from them.

#include "model/graph.hpp"
#include "program/ir/op_types.hpp"

namespace ztrain::program {

void split_head_forward(Program& program, const Operands& operands, const model::Node& node);
void split_head_adjoint(Tape& tape, const model::Node& node);

}  // namespace ztrain::program
