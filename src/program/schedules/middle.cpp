#include "program/schedules/middle.hpp"

#include <algorithm>

#include "base/shape.hpp"

namespace ztrain::program {
namespace {

class Planner {
 public:
  Planner(const Schedule& schedule, int ranks, int ahead)
      : schedule_(schedule), ranks_(ranks), ahead_(ahead) {}

  SteadyState steady(int micro_batches, int rank) const {
    return schedule_.steady(
        {.micro_batches = micro_batches, .ranks = ranks_, .rank = rank, .chunks = schedule_.chunks});
  }

  /// Iterations until all are over that are in flight when one ends. Messages are begun earlier, and known to
  /// be received later.
  int warm_up(const SteadyState& steady) const {
    if (ranks_ == 1 && steady.in_flight == 0) return 0;
    return static_cast<int>(ceil_div(steady.in_flight, steady.stride) + ceil_div(ahead_, steady.length)) + 1;
  }

  /// Iterations at the beginning of a steady state that differ from the later ones, because they set
  /// gradients. With late halves for weights, ranks begin to repeat one after another, and how long a message
  /// is known to be under way settles only when all do.
  int unlike(const SteadyState& steady, int warm_up) const {
    if (warm_up == 0) return 2;
    return steady.has_late ? ranks_ : 1;
  }

  /// Sets the bodies. False if a step of so many micro-batches is too short. The last iteration is not the
  /// copy, so that what is done ahead for the next iteration is done in the copy too.
  bool place(Middle& middle) const {
    middle.bodies.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      const SteadyState own = steady(middle.few, rank);
      const int begin = own.end - 3 * own.length;
      if (begin < own.begin + (unlike(own, middle.warm_up) + middle.warm_up) * own.length) return false;
      middle.bodies.push_back({begin, own.length});
    }
    return true;
  }

 private:
  const Schedule& schedule_;
  int ranks_, ahead_;
};

}  // namespace

std::optional<Middle> middle_of(const Schedule& schedule, int ranks, int micro_batches, int ahead) {
  if (!schedule.steady || micro_batches < 6) return std::nullopt;
  const Planner planner(schedule, ranks, ahead);
  Middle middle;
  middle.stride = planner.steady(micro_batches, 0).stride;
  for (int rank = 0; rank < ranks; ++rank)
    middle.warm_up = std::max(middle.warm_up, planner.warm_up(planner.steady(micro_batches, rank)));
  for (middle.few = micro_batches % middle.stride + middle.stride; middle.few < micro_batches;
       middle.few += middle.stride) {
    middle.times = (micro_batches - middle.few) / middle.stride + 1;
    if (planner.place(middle)) return middle;
  }
  return std::nullopt;
}

}  // namespace ztrain::program
