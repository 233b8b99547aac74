#pragma once
// The two halves of a backward. An op is of the half for weights where its row in the op table says so
// (OpType::for_weights), or where what it makes is read by such ops alone. An op that gives gradients of both
// kinds is of the half for inputs.

#include <cstdint>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Which gradients of weights are of the half for weights. What they are made of is held until then.
enum class LateWeights : std::uint8_t {
  all,
  kept  ///< those of what forward kept: what was recomputed is used for both halves at once, and let go
};

/// Takes the half for weights out of the ops of one backward, which are those from `first` on: returns them
/// in their order. kept: tensors that backwards to come may read.
std::vector<Op> take_weights_half(Program& program, std::size_t first, const std::vector<TensorId>& kept,
                                  LateWeights late);

}  // namespace ztrain::program
