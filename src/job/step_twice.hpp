#pragma once
// A step that is taken twice from one state: what computes the same twice has the same bits.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/op_hashes.hpp"
#include "job/worker.hpp"

namespace ztrain::job {

/// Between the two, on one rank.
struct StepDifference {
  std::vector<std::string> results;  ///< names of what is kept (held_pieces), or "loss and norm"
  /// On CPU ranks the first op that gave other results for the same operands: it, on this rank, was wrong.
  std::optional<engine::FoundOp> op;
};

/// Collective. The step, and once more from the state that `restore` brings back, which is that before the
/// step; what the second leaves stays. set_scalars: writes what the host has to say of the step.
StepDifference step_twice(Worker& worker, const std::function<void()>& restore,
                          const std::function<void(StepScalars&)>& set_scalars);

}  // namespace ztrain::job
