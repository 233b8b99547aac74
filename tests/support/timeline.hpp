#pragma once
// When the ranks of a pipeline take their turns, if each takes a given time and messages take another: what a
// schedule costs by itself, without a model.

#include <algorithm>
#include <vector>

#include "base/shape.hpp"
#include "program/schedules/messages.hpp"

namespace ztrain::test {

using program::PipelineOrder;
using program::Turn;
using program::TurnKind;

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
  double waiting(int rank) const { return seconds - busy(ranks[at(rank)]); }
  /// The same between its first turn and its last.
  double waiting_between(int rank) const {
    const std::vector<Slot>& slots = ranks[at(rank)];
    return slots.empty() ? 0 : slots.back().end - slots.front().begin - busy(slots);
  }

 private:
  static double busy(const std::vector<Slot>& slots) {
    double sum = 0;
    for (const Slot& slot : slots) sum += slot.end - slot.begin;
    return sum;
  }
};

class TurnClock {
 public:
  TurnClock(const PipelineOrder& order, const std::vector<TurnCosts>& costs) : order_(order), costs_(costs) {
    line_.ranks.resize(order.turns.size());
    line_.alive.assign(order.turns.size(), 0);
    alive_.assign(order.turns.size(), 0);
    for (const auto& turns : order.turns)
      for (const Turn& turn : turns) micros_ = std::max(micros_, turn.micro + 1);
    done_.assign(at(2 * order.map.stages() * micros_), not_yet);
  }

  Timeline run() {
    follow_turns(order_, [&](int rank, const Turn& turn) { return take(rank, turn); });
    return std::move(line_);
  }

 private:
  static constexpr double not_yet = -1;

  /// Whether what the turn needs of its neighbour is there, and since when.
  bool take(int rank, const Turn& turn) {
    auto& slots = line_.ranks[at(rank)];
    const int stage = order_.map.stage_of(rank, turn.chunk);
    const bool forward = turn.kind == TurnKind::forward, weights = turn.kind == TurnKind::backward_weights;
    const int neighbour = forward ? stage - 1 : stage + 1;
    double begin = slots.empty() ? 0 : slots.back().end;
    if (!weights && neighbour >= 0 && neighbour < order_.map.stages()) {
      const double done = done_[slot(!forward, neighbour, turn.micro)];
      if (done == not_yet) return false;
      const bool far = order_.map.rank_of(neighbour) != rank;
      begin = std::max(begin, done + (far ? costs_[at(neighbour)].message : 0));
    }
    const double end = begin + seconds(turn.kind, costs_[at(stage)]);
    slots.push_back({turn, begin, end});
    line_.seconds = std::max(line_.seconds, end);
    if (!weights) done_[slot(!forward, stage, turn.micro)] = end;
    count(at(rank), turn.kind);
    return true;
  }

  std::size_t slot(bool backward, int stage, int micro) const {
    return at(((backward ? order_.map.stages() : 0) + stage) * micros_ + micro);
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
  int micros_ = 0;
  std::vector<double> done_;  ///< the end of each forward and backward for inputs, by slot()
  std::vector<int> alive_;    ///< by rank, now
};

/// costs: by stage. Throws Error where ranks wait for each other in a circle.
inline Timeline timeline_of(const PipelineOrder& order, const std::vector<TurnCosts>& costs) {
  return TurnClock(order, costs).run();
}

}  // namespace ztrain::test
