#pragma once
// When the ops of one run of a Program begin and end, as it is planned (plan/step_time.hpp) and as it was
// done (engine/timings.hpp): for traces.

#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// When an op runs, in seconds.
struct OpTime {
  double begin = 0, end = 0;
  OpId cause = -1;  ///< issue of another stream whose end this op waited for; -1: it waited for none
};

/// Kinds of time between two ops of the stream that computes.
enum class GapKind : std::uint8_t {
  wait,      ///< nothing is computed until another op ends
  launch,    ///< the host has not issued the next op yet
  start,     ///< the host, which also computes, starts a communication
  progress,  ///< the host, which also computes, moves a communication along
};

struct Gap {
  GapKind kind = GapKind::wait;
  OpId issue = -1;  ///< the op that is waited for, launched, started or moved along
  double begin = 0, end = 0;
};

/// One run of a Program.
struct StepTimes {
  std::vector<OpTime> ops;  ///< by issue
  std::vector<Gap> gaps;    ///< in the order of time
};

}  // namespace ztrain::program
