#pragma once
// Orders of a step that one rank may take as well as today's, and those of all ranks of a pipeline: for tests
// of what follows a schedule.

#include <algorithm>
#include <array>

#include "tests/support/timeline.hpp"

namespace ztrain::test {

using program::Schedule;
using program::ScheduleInput;

/// Forwards run `ahead` micro-batches before backwards; halves for weights wait for `late` further ones. Of
/// every micro-batch all chunks at once.
inline std::vector<Turn> staggered(int micro_batches, int chunks, int ahead, int late) {
  std::vector<Turn> turns;
  for (int step = 0; step < micro_batches + ahead + late; ++step) {
    const auto in_step = [&](int m) { return m >= 0 && m < micro_batches; };
    if (in_step(step))
      for (int c = 0; c < chunks; ++c) turns.push_back({TurnKind::forward, c, step});
    if (const int m = step - ahead; in_step(m))
      for (int c = chunks; c-- > 0;)
        turns.push_back({late > 0 ? TurnKind::backward_inputs : TurnKind::backward, c, m});
    if (const int m = step - ahead - late; late > 0 && in_step(m))
      for (int c = chunks; c-- > 0;) turns.push_back({TurnKind::backward_weights, c, m});
  }
  return turns;
}

/// Chunk by chunk, of each all micro-batches.
inline std::vector<Turn> breadth_first(int micro_batches, int chunks) {
  std::vector<Turn> turns;
  for (int c = 0; c < chunks; ++c)
    for (int m = 0; m < micro_batches; ++m) turns.push_back({TurnKind::forward, c, m});
  for (int c = chunks; c-- > 0;)
    for (int m = 0; m < micro_batches; ++m) turns.push_back({TurnKind::backward, c, m});
  return turns;
}

/// Of one stage, which all give what 'sequential' gives, bit for bit.
inline const std::array other_schedules{
    Schedule{"all forwards first",
             [](const ScheduleInput& s) { return staggered(s.micro_batches, 1, s.micro_batches, 0); }},
    Schedule{"one forward, one backward",
             [](const ScheduleInput& s) { return staggered(s.micro_batches, 1, 2, 0); }},
    Schedule{"late weights", [](const ScheduleInput& s) { return staggered(s.micro_batches, 1, 1, 2); }},
    Schedule{"weights at the end",
             [](const ScheduleInput& s) { return staggered(s.micro_batches, 1, 0, s.micro_batches); }},
    Schedule{"three chunks, late weights",
             [](const ScheduleInput& s) { return staggered(s.micro_batches, 3, 1, 1); }, 3},
    Schedule{"two chunks, breadth first",
             [](const ScheduleInput& s) { return breadth_first(s.micro_batches, 2); }, 2}};

/// Of all ranks of a pipeline.
inline PipelineOrder order_of(const Schedule& schedule, int ranks, int micro_batches) {
  PipelineOrder order{stage_map(schedule, ranks), {}};
  for (int rank = 0; rank < ranks; ++rank)
    order.turns.push_back(schedule.turns(
        {.micro_batches = micro_batches, .ranks = ranks, .rank = rank, .chunks = schedule.chunks}));
  return order;
}

/// Where all stages cost alike.
inline Timeline even(const PipelineOrder& order, const TurnCosts& costs = {}) {
  return timeline_of(order, std::vector<TurnCosts>(at(order.map.stages()), costs));
}

}  // namespace ztrain::test
