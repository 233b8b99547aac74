#pragma once
// The step of many micro-batches as that of a few, in which some turns are taken more often. What repeats is
// stated by the schedule (SteadyState).

#include <optional>
#include <vector>

#include "program/schedules/schedule.hpp"

namespace ztrain::program {

/// A body is one iteration of a rank's steady state.
struct Middle {
  int few = 0;      ///< micro-batches of the step that is compiled
  int stride = 1;   ///< micro-batches of one iteration of the body
  int times = 1;    ///< iterations of the body, in the whole step
  int warm_up = 0;  ///< iterations directly before the body that are identical to it: Repeat::warm_up
  /// The turns of one rank's body, in the step of a few.
  struct Body {
    int begin = 0, length = 0;
    int end() const { return begin + length; }
  };
  std::vector<Body> bodies;  ///< by rank

  /// Micro-batches by which turns behind the body are later than in the step of a few.
  int shift() const { return (times - 1) * stride; }
};

/// Returns nothing if the schedule states no steady state, or if its steady state is so short that nothing is
/// left out. ahead: turns by which receives are begun early. The body of every rank begins with a forward,
/// and all bodies end equally many iterations before the ends of their steady states.
std::optional<Middle> middle_of(const Schedule& schedule, int ranks, int micro_batches, int ahead);

}  // namespace ztrain::program
