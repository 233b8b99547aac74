#pragma once
// When the ranks of a pipeline take their turns, if each takes a given time and messages take another: what a
// schedule costs by itself, without a model. Pure.

#include <vector>

#include "program/schedules/messages.hpp"

namespace ztrain::program {

/// Seconds. backward is inputs + weights where a turn is both.
struct TurnCosts {
  double forward = 1, inputs = 1, weights = 1;
  double message = 0;  ///< from the end of a turn to that of its message
};

struct Timeline {
  struct Slot {
    Turn turn;
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Slot>> ranks;  ///< in the order of their turns
  double seconds = 0;                    ///< to the end of the last
  /// By rank: micro-batches of its chunks whose forward is done and whose backward, with its half for
  /// weights, is not, at most.
  std::vector<int> alive;

  /// By rank: seconds without a turn, before the first and behind the last included.
  double waiting(int rank) const;
  /// The same between its first turn and its last.
  double waiting_between(int rank) const;
};

/// costs: by stage. Throws Error where ranks wait for each other in a circle.
Timeline timeline_of(const PipelineOrder& order, const std::vector<TurnCosts>& costs);

}  // namespace ztrain::program
