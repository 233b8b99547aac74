#pragma once
// Orders of a pipeline's turns that no schedule gives: for tests of what follows from any order.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "program/schedules/messages.hpp"

namespace ztrain::test {

using program::PipelineOrder;
using program::StageMap;
using program::Turn;
using program::TurnKind;

/// Turns in an order that is drawn, of which each only waits for what it needs.
class DrawnOrder {
 public:
  DrawnOrder(const StageMap& map, int micros, std::uint64_t seed) : map_(map), micros_(micros), seed_(seed) {
    order_.map = map;
    order_.turns.resize(static_cast<std::size_t>(map.ranks));
    done_.assign(static_cast<std::size_t>(map.stages() * micros), 0);
    halves_.resize(static_cast<std::size_t>(map.stages()));
  }

  PipelineOrder draw() {
    for (;;) {
      std::vector<std::pair<int, Turn>> ready;
      for (int stage = 0; stage < map_.stages(); ++stage) add_ready(stage, ready);
      if (ready.empty()) return std::move(order_);
      const auto [stage, turn] = ready[philox(seed_, 7, drawn_++)[0] % ready.size()];
      take(stage, turn);
    }
  }

 private:
  enum : int { nothing, forward_done, inputs_done };
  int& done(int stage, int micro) { return done_[static_cast<std::size_t>(stage * micros_ + micro)]; }
  std::vector<int>& halves(int stage) { return halves_[static_cast<std::size_t>(stage)]; }

  void add_ready(int stage, std::vector<std::pair<int, Turn>>& ready) {
    const int chunk = map_.chunk_of(stage);
    if (!halves(stage).empty())
      ready.push_back({stage, {TurnKind::backward_weights, chunk, halves(stage).front()}});
    for (int m = 0; m < micros_; ++m) {
      if (done(stage, m) == nothing && (stage == 0 || done(stage - 1, m) >= forward_done))
        ready.push_back({stage, {TurnKind::forward, chunk, m}});
      if (done(stage, m) != forward_done) continue;
      if (stage + 1 < map_.stages() && done(stage + 1, m) != inputs_done) continue;
      ready.push_back({stage, {TurnKind::backward_inputs, chunk, m}});
      if (halves(stage).empty()) ready.push_back({stage, {TurnKind::backward, chunk, m}});
    }
  }

  void take(int stage, const Turn& turn) {
    order_.turns[static_cast<std::size_t>(map_.rank_of(stage))].push_back(turn);
    if (turn.kind == TurnKind::backward_weights)
      halves(stage).erase(halves(stage).begin());
    else
      ++done(stage, turn.micro);
    if (turn.kind == TurnKind::backward_inputs) halves(stage).push_back(turn.micro);
  }

  StageMap map_;
  int micros_;
  std::uint64_t seed_, drawn_ = 0;
  PipelineOrder order_;
  std::vector<int> done_;                 ///< by stage and micro-batch
  std::vector<std::vector<int>> halves_;  ///< by stage: micro-batches whose half for weights is left
};

}  // namespace ztrain::test
