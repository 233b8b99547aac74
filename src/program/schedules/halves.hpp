#pragma once
// The two halves of a backward. An op is of the half for weights where its row in the op table says so
// (OpType::for_weights), or where what it makes is read by such ops alone. An op that gives gradients of both
// kinds is of the half for inputs.

#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Takes the half for weights out of the ops of one backward, which are those from `first` on: returns them
/// in their order. kept: tensors that backwards to come may read.
std::vector<Op> take_weights_half(Program& program, std::size_t first, const std::vector<TensorId>& kept);

}  // namespace ztrain::program
