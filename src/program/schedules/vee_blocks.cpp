// Schedules of two stages a rank, which lie on the ranks back and forth (StageMap::vee) and hold
// fewer activations than zb-v (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024).
//
//   v-half  (p + 2) / 2 micro-batches on every rank; half of 1f1b's bubble if F = B = W
//   v-min   (p + 4) / 3 micro-batches on every rank; two thirds of 1f1b's bubble if F = B = W
//
// A block says when each rank takes the six turns of one micro-batch, if all turns take equally long.
// The next micro-batch repeats the block six turns later, and no two turns of a rank fall on the same
// time. A rank holds as many micro-batches as blocks overlap, so a short block saves memory. In the
// warm-up and in the cool-down this order would make a rank wait; there the rank takes turns ahead of
// the order, as far as that needs no more memory.

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "program/schedules/schedule.hpp"

namespace ztrain::program {
namespace {

/// The turns of a micro-batch on a rank. A half for weights needs the lane two before it.
enum Lane : std::uint8_t { forward0, forward1, inputs1, inputs0, weights1, weights0 };
constexpr std::array<Turn, 6> lanes{{{TurnKind::forward, 0},
                                     {TurnKind::forward, 1},
                                     {TurnKind::backward_inputs, 1},
                                     {TurnKind::backward_inputs, 0},
                                     {TurnKind::backward_weights, 1},
                                     {TurnKind::backward_weights, 0}}};
constexpr int period = static_cast<int>(lanes.size());
using ByLane = std::array<int, lanes.size()>;

struct Block {
  int pace = 1;   ///< turns from a rank to the next in forward0 and inputs1; 1 in forward1 and inputs0
  int first = 0;  ///< turns between forward1 and inputs1 of a micro-batch on the first rank
  int last = 0;   ///< turns between inputs1 and inputs0 of a micro-batch on the last rank
  int most = 0;   ///< activations of stages that a rank may hold
};

/// The pauses are the shortest with which no two turns of a rank fall on the same time.
Block half(int ranks) {
  return {.pace = 2, .first = ranks % 2 == 0 ? 3 : 0, .last = 1, .most = 2 * ((ranks + 2) / 2)};
}
Block least(int ranks) {
  return {.pace = 1, .first = ranks % 3 == 0 ? 2 : 0, .last = 0, .most = 2 * ((ranks + 4) / 3)};
}

/// Returns when a rank takes the turns of micro-batch 0. Halves for weights take the first free times.
ByLane times_of(const Block& block, int ranks, int rank) {
  const int there = block.pace * (ranks - 1) + 1, back = ranks - 1 - rank;
  const int first_inputs = there + ranks + block.first;
  ByLane times{block.pace * rank, there + back, first_inputs + block.pace * rank,
               first_inputs + there + block.last + back};
  for (int lane = weights1; lane <= weights0; ++lane) {
    int& time = times[at(lane)];
    time = times[at(lane - 2)] + 1;
    while (std::any_of(times.begin(), times.begin() + lane, [&](int t) { return (time - t) % period == 0; }))
      ++time;
  }
  return times;
}

/// Simulates ranks, each of which takes at most one turn in a unit of time.
class Ranks {
 public:
  Ranks(const Block& block, const ScheduleInput& input) : block_(block), micros_(input.micro_batches) {
    for (int rank = 0; rank < input.ranks; ++rank) times_.push_back(times_of(block, input.ranks, rank));
    taken_.resize(times_.size());
  }

  std::vector<Turn> turns_of(int rank) {
    std::vector<Turn> turns;
    while (turns.size() < lanes.size() * at(micros_)) {
      const std::vector<ByLane> before = std::exchange(taken_, next());
      for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        if (const int micro = before[at(rank)][lane]; taken_[at(rank)][lane] > micro)
          turns.push_back({lanes[lane].kind, lanes[lane].chunk, micro});
      ASSERT(taken_ != before, "no rank of {} can take a turn", times_.size());
    }
    return turns;
  }

 private:
  /// Returns the turns that are taken after one more unit of time.
  std::vector<ByLane> next() const {
    std::vector<ByLane> after = taken_;
    for (std::size_t rank = 0; rank < times_.size(); ++rank) {
      int first = -1, first_due = std::numeric_limits<int>::max();
      for (int lane = 0; lane < period; ++lane)
        if (const int due = due_of(rank, lane); due < first_due && can_take(rank, lane))
          first = lane, first_due = due;
      if (first >= 0) ++after[rank][at(first)];
    }
    return after;
  }

  /// Returns the time of a lane's next turn in the order of blocks. In the cool-down no forward needs
  /// memory any more, so halves for weights come after halves for inputs, for which other ranks wait.
  int due_of(std::size_t rank, int lane) const {
    const bool cools = taken_[rank][forward0] == micros_ && taken_[rank][forward1] == micros_;
    const int wait = cools && lane >= weights1 ? period * (micros_ + block_.most) : 0;
    return times_[rank][at(lane)] + period * taken_[rank][at(lane)] + wait;
  }

  bool can_take(std::size_t rank, int lane) const {
    const int micro = taken_[rank][at(lane)];
    if (micro == micros_) return false;
    if (lane >= weights1) return taken_[rank][at(lane - 2)] > micro;
    const bool onward = lane == forward0 || lane == inputs1;
    if (rank != (onward ? 0 : times_.size() - 1)) {
      if (taken_[onward ? rank - 1 : rank + 1][at(lane)] <= micro) return false;
    } else if (lane != forward0 && taken_[rank][at(lane - 1)] <= micro) {
      return false;
    }
    return lane > forward1 || has_room(rank, lane);
  }

  /// Returns whether this turn leaves room for the forwards that are due earlier.
  bool has_room(std::size_t rank, int lane) const {
    const ByLane& taken = taken_[rank];
    const int other = lane == forward0 ? forward1 : forward0;
    const int due = due_of(rank, lane) - times_[rank][at(other)];
    const int earlier = std::min(micros_, static_cast<int>(ceil_div(std::max(due, 0), period)));
    const int alive = taken[forward0] + taken[forward1] - taken[weights1] - taken[weights0];
    return alive + std::max(0, earlier - taken[at(other)]) < block_.most;
  }

  Block block_;
  int micros_;
  std::vector<ByLane> times_;  ///< by rank: of micro-batch 0
  std::vector<ByLane> taken_;  ///< by rank: micro-batches whose turn is taken
};

/// Returns a number of micro-batches whose turns have a steady state on every rank.
int few_of(const ScheduleInput& input) {
  return std::min(input.micro_batches, 2 * input.ranks + 12);
}

/// The longest part of the turns in which each turn is, `period` turns later, that of the next micro-batch.
struct Repeated {
  int begin = 0, end = 0;
};
Repeated repeated_in(const std::vector<Turn>& turns) {
  Repeated longest;
  for (int begin = 0, end = period; end <= std::ssize(turns); ++end) {
    const bool more = end < std::ssize(turns);
    const Turn then = more ? turns[at(end - period)] : Turn{}, now = more ? turns[at(end)] : Turn{};
    if (more && now == Turn{then.kind, then.chunk, then.micro + 1}) continue;
    if (end - begin > longest.end - longest.begin) longest = {begin, end};
    begin = end - period + 1;
  }
  return longest;
}

/// Simulates a shorter step, whose steady state further micro-batches only lengthen.
std::vector<Turn> turns_of(const Block& block, ScheduleInput input) {
  const int more = input.micro_batches - few_of(input);
  input.micro_batches -= more;
  std::vector<Turn> turns = Ranks(block, input).turns_of(input.rank);
  if (more == 0) return turns;
  const auto end = turns.begin() + repeated_in(turns).end;
  std::vector<Turn> all(turns.begin(), end);
  const auto add = [&](auto from, auto to, int later) {
    for (auto turn = from; turn != to; ++turn) all.push_back({turn->kind, turn->chunk, turn->micro + later});
  };
  for (int later = 1; later <= more; ++later) add(end - period, end, later);
  add(end, turns.end(), more);
  return all;
}

/// Returns the number of micro-batches that are begun and not done after the first `end` turns.
int in_flight(const std::vector<Turn>& turns, int end) {
  int begun = 0;
  std::array<int, 2> done{};
  for (int i = 0; i < end; ++i) {
    if (turns[at(i)].kind == TurnKind::backward_weights) ++done[at(turns[at(i)].chunk)];
    if (turns[at(i)].kind == TurnKind::forward && turns[at(i)].chunk == 0) ++begun;
  }
  return begun - std::min(done[0], done[1]);
}

/// Finds what repeats in the turns of a shorter step.
SteadyState steady_of(const Block& block, ScheduleInput input) {
  const int micros = std::exchange(input.micro_batches, few_of(input));
  const std::vector<Turn> turns = turns_of(block, input);
  const Repeated repeated = repeated_in(turns);
  SteadyState steady{.begin = repeated.begin, .end = repeated.end, .length = period, .has_late = true};
  const auto begins = [&](const Turn& turn) { return turn.kind == TurnKind::forward && turn.chunk == 0; };
  while (steady.end - period > steady.begin && !begins(turns[at(steady.end - period)])) --steady.end;
  steady.in_flight = in_flight(turns, steady.begin + period);
  steady.end += period * (micros - input.micro_batches);
  return steady;
}

}  // namespace

std::vector<Turn> vee_half(const ScheduleInput& input) {
  return turns_of(half(input.ranks), input);
}

SteadyState steady_vee_half(const ScheduleInput& input) {
  return steady_of(half(input.ranks), input);
}

std::vector<Turn> vee_min(const ScheduleInput& input) {
  return turns_of(least(input.ranks), input);
}

SteadyState steady_vee_min(const ScheduleInput& input) {
  return steady_of(least(input.ranks), input);
}

}  // namespace ztrain::program
