// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", 2021): every rank has several stages, a round trip apart, which divides the bubble by their
// number. Micro-batches go in groups of as many as there are ranks, through all chunks before the next group.

#include <algorithm>
#include <utility>

#include "base/shape.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::program {

namespace {

/// Forwards of a rank before the first that has a backward behind it.
int forwards_ahead(const ScheduleInput& input) {
  return (input.chunks - 1) * input.ranks + 2 * (input.ranks - 1 - input.rank);
}

}  // namespace

std::vector<Turn> interleaved(const ScheduleInput& input) {
  const auto groups = static_cast<int>(ceil_div(input.micro_batches, input.ranks));
  std::vector<std::pair<int, int>> forwards, backwards;  // {chunk, micro-batch}
  for (int group = 0; group < groups; ++group)
    for (int c = 0; c < input.chunks; ++c)
      for (int m = group * input.ranks; m < (group + 1) * input.ranks; ++m) {
        forwards.emplace_back(c, m);
        backwards.emplace_back(input.chunks - 1 - c, m);
      }
  const std::size_t ahead = std::min(forwards.size(), static_cast<std::size_t>(forwards_ahead(input)));
  std::vector<Turn> turns;
  // The last group's may be fewer: of those that would fill it up nothing is done.
  const auto take = [&](TurnKind kind, const std::pair<int, int>& of) {
    if (of.second < input.micro_batches) turns.push_back({kind, of.first, of.second});
  };
  for (std::size_t f = 0; f < ahead; ++f) take(TurnKind::forward, forwards[f]);
  for (std::size_t b = 0; b < backwards.size(); ++b) {
    if (ahead + b < forwards.size()) take(TurnKind::forward, forwards[ahead + b]);
    take(TurnKind::backward, backwards[b]);
  }
  return turns;
}

/// An iteration is a group's turns. A last group that is not full begins as one that is. With one chunk
/// groups make no difference, and an iteration is a micro-batch's.
SteadyState steady_interleaved(const ScheduleInput& input) {
  const int micros = input.chunks == 1 ? 1 : input.ranks, group = input.chunks * micros;
  const int ahead = forwards_ahead(input);
  const int forwards = input.micro_batches / micros * group + input.micro_batches % micros;
  return {.begin = ahead,
          .end = 2 * forwards - ahead,
          .length = 2 * group,
          .stride = micros,
          .in_flight = ahead / group * micros + std::min(micros, ahead % group)};
}

}  // namespace ztrain::program
