#pragma once
// Runs steps of a built-in deck and times what they consist of.

#include <map>
#include <string>
#include <vector>

#include "bench/calibrate/decks.hpp"
#include "plan/rates/fit_rates.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::bench {

/// Ops of a deck's step that do the same.
struct SameOps {
  plan::Measurement one;  ///< of one of them
  int count = 0;          ///< in a step
};

struct DeckTimes {
  std::string name;
  double step =
      0;  ///< seconds of a step as it is, the fastest, in which others on the machine take the least part
  double by_others = 0;  ///< cores of the machine that other processes used meanwhile, on average
  std::map<std::string, std::vector<SameOps>> kernels, collectives;  ///< by plan::kernel_name()
};

/// Collective. Takes `steps` steps as they are, or more short ones, `steps` with a clock at each op, and then
/// runs each collective by itself.
DeckTimes time_deck(const runtime::Session& session, telemetry::Console& console, const CalibrationDeck& deck,
                    int steps);

}  // namespace ztrain::bench
