#include "program/schedules/middle.hpp"

#include <algorithm>

#include "base/shape.hpp"

namespace ztrain::program {
namespace {

/// Returns the iterations until all micro-batches are done that are in flight when one iteration ends.
/// Messages are begun earlier, and known to be received later.
int warm_up(const SteadyState& steady, int ranks, int ahead) {
  if (ranks == 1 && steady.in_flight == 0) return 0;
  return static_cast<int>(ceil_div(steady.in_flight, steady.stride) + ceil_div(ahead, steady.length)) + 1;
}

/// Returns the iterations at the beginning of a steady state that differ from the later ones, because
/// they set gradients. With late halves for weights, ranks begin to repeat one after another, and how
/// long a message is known to be under way settles only when all do.
int unlike(const SteadyState& steady, int ranks, int warm_up) {
  if (warm_up == 0) return 2;
  return steady.has_late ? ranks : 1;
}

}  // namespace

/// The last iteration of a steady state is not the copy, so that what is done ahead for the next
/// iteration is done in the copy too.
std::optional<Middle> middle_of(const Schedule& schedule, int ranks, int micro_batches, int ahead) {
  if (!schedule.steady || micro_batches < 6) return std::nullopt;
  Middle middle;
  std::vector<SteadyState> steady;  // by rank
  for (int rank = 0; rank < ranks; ++rank) {
    steady.push_back(schedule.steady(
        {.micro_batches = micro_batches, .ranks = ranks, .rank = rank, .chunks = schedule.chunks}));
    middle.warm_up = std::max(middle.warm_up, warm_up(steady.back(), ranks, ahead));
  }
  middle.stride = steady[0].stride;
  int left_out = micro_batches / middle.stride - 1;  // iterations
  for (const SteadyState& own : steady) {
    const int before = unlike(own, ranks, middle.warm_up) + middle.warm_up;
    left_out = std::min(left_out, (own.end - own.begin) / own.length - 3 - before);
  }
  if (left_out < 1) return std::nullopt;
  middle.times = left_out + 1;
  middle.few = micro_batches - middle.shift();
  for (const SteadyState& own : steady)
    middle.bodies.push_back({own.end - (3 + left_out) * own.length, own.length});
  return middle;
}

}  // namespace ztrain::program
