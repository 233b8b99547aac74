// Schedules of pipelines whose ranks have one stage each. B: backward for inputs, W: backward for weights.
//
//   gpipe  Huang et al., "GPipe", 2019: all forwards, then all backwards
//   1f1b   Narayanan et al., "PipeDream", 2019; Fan et al., "DAPPLE", 2021: a rank has at most as many
//          micro-batches in flight as there are stages from it to the end
//   zb-h1  Qi et al., "Zero Bubble Pipeline Parallelism", 2023: W late enough that every rank has as many in
//          flight as the first one of 1f1b; bubble (p - 1) (F + B - W)
//   zb-h2  the same: 2 p - 1 in flight; where F = B = W a rank waits only for the first and the last

#include "program/schedules/schedule.hpp"

namespace ztrain::program {
namespace {

/// Says how far forwards run ahead, and how late the halves for weights are.
struct Lags {
  int forward = 0;  ///< forwards before the first of those that each have a backward behind them
  int weights = 0;  ///< micro-batches whose B is done and whose W is not
};

std::vector<Turn> halved(const ScheduleInput& input, Lags lags) {
  std::vector<Turn> turns;
  int forwards = 0, weights = 0;
  while (forwards < lags.forward && forwards < input.micro_batches)
    turns.push_back({TurnKind::forward, 0, forwards++});
  for (int m = 0; m < input.micro_batches; ++m) {
    if (forwards < input.micro_batches) turns.push_back({TurnKind::forward, 0, forwards++});
    turns.push_back({TurnKind::backward_inputs, 0, m});
    if (m >= lags.weights) turns.push_back({TurnKind::backward_weights, 0, weights++});
  }
  while (weights < input.micro_batches) turns.push_back({TurnKind::backward_weights, 0, weights++});
  return turns;
}

/// A micro-batch is in flight from its forward to its half for weights.
SteadyState steady_halved(const ScheduleInput& input, Lags lags) {
  const int begin = lags.forward + 2 * lags.weights, in_flight = lags.forward + lags.weights;
  return {.begin = begin,
          .end = begin + 3 * (input.micro_batches - in_flight),
          .length = 3,
          .in_flight = in_flight,
          .has_late = true};
}

Lags lags_of_h1(const ScheduleInput& input) {
  return {.forward = input.ranks - 1 - input.rank, .weights = input.rank};
}

Lags lags_of_h2(const ScheduleInput& input) {
  return {.forward = 2 * (input.ranks - 1 - input.rank), .weights = 2 * input.rank};
}

}  // namespace

std::vector<Turn> gpipe(const ScheduleInput& input) {
  std::vector<Turn> turns;
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::forward, 0, m});
  for (int m = 0; m < input.micro_batches; ++m) turns.push_back({TurnKind::backward, 0, m});
  return turns;
}

std::vector<Turn> one_forward_one_backward(const ScheduleInput& input) {
  std::vector<Turn> turns;
  int forwards = 0;
  while (forwards < input.ranks - 1 - input.rank && forwards < input.micro_batches)
    turns.push_back({TurnKind::forward, 0, forwards++});
  for (int m = 0; m < input.micro_batches; ++m) {
    if (forwards < input.micro_batches) turns.push_back({TurnKind::forward, 0, forwards++});
    turns.push_back({TurnKind::backward, 0, m});
  }
  return turns;
}

SteadyState steady_1f1b(const ScheduleInput& input) {
  const int ahead = input.ranks - 1 - input.rank;
  return {.begin = ahead, .end = 2 * input.micro_batches - ahead, .length = 2, .in_flight = ahead};
}

std::vector<Turn> zero_bubble_h1(const ScheduleInput& input) {
  return halved(input, lags_of_h1(input));
}

SteadyState steady_h1(const ScheduleInput& input) {
  return steady_halved(input, lags_of_h1(input));
}

std::vector<Turn> zero_bubble_h2(const ScheduleInput& input) {
  return halved(input, lags_of_h2(input));
}

SteadyState steady_h2(const ScheduleInput& input) {
  return steady_halved(input, lags_of_h2(input));
}

}  // namespace ztrain::program
