#include "program/schedules/timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"

namespace ztrain::program {
namespace {

class Clock {
 public:
  Clock(const PipelineOrder& order, const std::vector<TurnCosts>& costs) : order_(order), costs_(costs) {
    line_.ranks.resize(order.turns.size());
    line_.alive.assign(order.turns.size(), 0);
    alive_.assign(order.turns.size(), 0);
  }

  Timeline run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (int rank = 0; rank < std::ssize(order_.turns); ++rank)
        while (line_.ranks[at(rank)].size() < order_.turns[at(rank)].size() && take(rank)) moves = true;
    }
    for (std::size_t rank = 0; rank < order_.turns.size(); ++rank)
      REQUIRE(line_.ranks[rank].size() == order_.turns[rank].size(),
              "pipeline.schedule: rank {} of the pipeline waits at its {} for what comes of it", rank,
              describe(order_.turns[rank][line_.ranks[rank].size()], {order_.map, static_cast<int>(rank)}));
    return std::move(line_);
  }

 private:
  using Done = std::tuple<bool, int, int>;  ///< {backward for inputs, stage, micro-batch}

  /// Whether what the turn needs of its neighbour is there, and since when.
  bool take(int rank) {
    auto& slots = line_.ranks[at(rank)];
    const Turn& turn = order_.turns[at(rank)][slots.size()];
    const int stage = order_.map.stage_of(rank, turn.chunk);
    const bool forward = turn.kind == TurnKind::forward, weights = turn.kind == TurnKind::backward_weights;
    const int neighbour = forward ? stage - 1 : stage + 1;
    double begin = slots.empty() ? 0 : slots.back().end;
    if (!weights && neighbour >= 0 && neighbour < order_.map.stages()) {
      const auto done = done_.find({!forward, neighbour, turn.micro});
      if (done == done_.end()) return false;
      const bool far = order_.map.rank_of(neighbour) != rank;
      begin = std::max(begin, done->second + (far ? costs_[at(neighbour)].message : 0));
    }
    const double end = begin + seconds(turn.kind, costs_[at(stage)]);
    slots.push_back({turn, begin, end});
    line_.seconds = std::max(line_.seconds, end);
    if (!weights) done_[{!forward, stage, turn.micro}] = end;
    count(at(rank), turn.kind);
    return true;
  }

  static double seconds(TurnKind kind, const TurnCosts& c) {
    switch (kind) {
      case TurnKind::forward:
        return c.forward;
      case TurnKind::backward:
        return c.inputs + c.weights;
      case TurnKind::backward_inputs:
        return c.inputs;
      case TurnKind::backward_weights:
        return c.weights;
    }
    return 0;
  }

  void count(std::size_t rank, TurnKind kind) {
    if (kind == TurnKind::forward) line_.alive[rank] = std::max(line_.alive[rank], ++alive_[rank]);
    if (kind == TurnKind::backward || kind == TurnKind::backward_weights) --alive_[rank];
  }

  const PipelineOrder& order_;
  const std::vector<TurnCosts>& costs_;
  Timeline line_;
  std::map<Done, double> done_;
  std::vector<int> alive_;  ///< by rank, now
};

double busy(const std::vector<Timeline::Slot>& slots) {
  double sum = 0;
  for (const Timeline::Slot& slot : slots) sum += slot.end - slot.begin;
  return sum;
}

}  // namespace

double Timeline::waiting(int rank) const {
  return seconds - busy(ranks[at(rank)]);
}

double Timeline::waiting_between(int rank) const {
  const std::vector<Slot>& slots = ranks[at(rank)];
  return slots.empty() ? 0 : slots.back().end - slots.front().begin - busy(slots);
}

Timeline timeline_of(const PipelineOrder& order, const std::vector<TurnCosts>& costs) {
  return Clock(order, costs).run();
}

}  // namespace ztrain::program
