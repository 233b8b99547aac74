// Schedules of two stages a rank, which lie on the ranks back and forth (StageMap::vee): what a rank waits
// for on one of its stages it spends on the other.
//
//   zb-v        Qi et al., "Pipeline Parallelism with Controllable Memory", 2024: no bubble where F = B = W,
//               with the memory of 1f1b's first rank on every rank
//   dualpipe-v  DeepSeek-AI, "DualPipe", 2024, cut in half: backwards of one stage beside forwards of the
//               other, on which the ranks' messages can hide
//
// Both are written for as many micro-batches as fill them; of fewer, the rest is left out, which keeps every
// order between those that are there.

#include <algorithm>
#include <array>
#include <deque>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::program {
namespace {

class List {
 public:
  explicit List(int micro_batches) : micro_batches_(micro_batches) {}

  void forward(int chunk) { add(TurnKind::forward, chunk, forwards_[at(chunk)]++); }
  void backward(int chunk) { add(TurnKind::backward, chunk, backwards_[at(chunk)]++); }
  void backward_inputs(int chunk) {
    late_.push_back({TurnKind::backward_weights, chunk, backwards_[at(chunk)]});
    add(TurnKind::backward_inputs, chunk, backwards_[at(chunk)]++);
  }
  /// The first half for weights that is left, of any chunk or of this one.
  void weights() { take(late_.begin()); }
  void weights_of(int chunk) { take(std::ranges::find(late_, chunk, &Turn::chunk)); }

  int forwards(int chunk) const { return forwards_[at(chunk)]; }
  bool has_late() const { return !late_.empty(); }
  bool has_late(int chunk) const { return std::ranges::count(late_, chunk, &Turn::chunk) > 0; }

  std::vector<Turn> take_all() {
    ASSERT(late_.empty(), "{} halves for weights are left", late_.size());
    return std::move(turns_);
  }

 private:
  void take(std::deque<Turn>::iterator turn) {
    ASSERT(turn != late_.end(), "no half for weights is left");
    add(turn->kind, turn->chunk, turn->micro);
    late_.erase(turn);
  }
  void add(TurnKind kind, int chunk, int micro) {
    if (micro < micro_batches_) turns_.push_back({kind, chunk, micro});
  }

  int micro_batches_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::deque<Turn> late_;
  std::vector<Turn> turns_;
};

}  // namespace

std::vector<Turn> zero_bubble_vee(const ScheduleInput& input) {
  const int behind = input.ranks - input.rank;  // this rank and those between it and the turn
  const int micro_batches = std::max(input.micro_batches, 2 * input.ranks - 1);
  List list(input.micro_batches);
  const auto whole = [&](int chunk) {
    list.backward_inputs(chunk);
    list.weights_of(chunk);
  };
  for (int i = 0; i < 2 * behind - 1; ++i) list.forward(0);
  for (int i = 0; i < input.rank; ++i) list.forward(1), list.forward(0);
  for (int i = 0; i < behind; ++i) list.forward(1), whole(1);
  while (list.forwards(1) < micro_batches) {
    if (list.forwards(0) < micro_batches) list.forward(0);
    whole(0);
    list.forward(1);
    whole(1);
  }
  for (int i = 0; i < input.rank; ++i) list.backward_inputs(0), list.backward_inputs(1);
  for (int i = 0; i < behind; ++i) whole(0);
  while (list.has_late(1)) list.weights_of(1);
  while (list.has_late(0)) list.weights_of(0);
  return list.take_all();
}

/// The last three turns of the warm-up are those of an iteration.
SteadyState steady_zero_bubble_vee(const ScheduleInput& input) {
  const int behind = input.ranks - input.rank, ahead = 2 * behind - 1 + input.rank;
  const int begin = 5 * behind + 2 * input.rank - 4;
  return {.begin = begin,
          .end = begin + 3 + 6 * (input.micro_batches - ahead),
          .length = 6,
          .in_flight = ahead,
          .has_late = true};
}

std::vector<Turn> dualpipe_vee(const ScheduleInput& input) {
  const int behind = input.ranks - input.rank - 1;  // ranks between this one and the turn
  const int own = input.rank + 1, micro_batches = std::max(input.micro_batches, 2 * input.ranks);
  List list(input.micro_batches);
  for (int i = 0; i < 2 * behind; ++i) list.forward(0);
  for (int i = 0; i < own; ++i) list.forward(0), list.forward(1);
  for (int i = 0; i < behind; ++i) list.backward_inputs(1), list.weights(), list.forward(1);
  for (int i = 0; i < micro_batches - 2 * input.ranks + own; ++i)
    list.forward(0), list.backward(1), list.forward(1), list.backward(0);
  for (int i = 0; i < behind; ++i) list.backward(1), list.forward(1), list.backward(0);
  // Of the backwards that are left, the second half leaves its halves for weights for what follows.
  for (int i = 0; i < 2 * own; ++i) {
    const int chunk = 1 - i % 2;
    if (i < own)
      list.backward(chunk);
    else
      list.backward_inputs(chunk);
  }
  for (int i = 0; i < behind; ++i) {
    if (list.has_late()) list.weights();
    list.backward_inputs(0);
  }
  while (list.has_late()) list.weights();
  return list.take_all();
}

SteadyState steady_dualpipe_vee(const ScheduleInput& input) {
  const int behind = input.ranks - input.rank - 1, own = input.rank + 1;
  const int begin = 5 * behind + 2 * own;
  return {.begin = begin,
          .end = begin + 4 * (input.micro_batches - 2 * input.ranks + own),
          .length = 4,
          .in_flight = 2 * behind + own};
}

}  // namespace ztrain::program
