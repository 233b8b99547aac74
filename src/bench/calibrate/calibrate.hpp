#pragma once
// Measures for `ztrain bench --calibrate` what the plan of a job on CPU ranks needs to know of the machine.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/calibrate/deck_times.hpp"
#include "plan/rates/write_rates.hpp"

namespace ztrain::bench {

struct CalibrationRequest {
  int steps = 5;       ///< of each deck, as they are and again with clocks
  bool quick = false;  ///< two small decks
};

/// Rates, and the times that they were fitted to, by the number of ranks at work. Only ranks that were at
/// work have them.
struct Calibrated {
  plan::Calibration rates;
  std::map<int, std::vector<DeckTimes>> times;
};

/// Returns the rates by which the steps of these decks take what they took, with `ranks` ranks on `cores`
/// cores.
plan::RatesOfNode rates_of(const std::vector<DeckTimes>& decks, int ranks, double cores);

/// Collective. Measures with 1, 2, 4, ... ranks at work and with all, while the others sleep. Throws
/// AgreedError where ranks compute on devices.
Calibrated calibrate(const runtime::Session& session, telemetry::Console& console,
                     const CalibrationRequest& request);

/// Returns what was measured, deck by deck.
nlohmann::json times_json(const Calibrated& calibrated);

}  // namespace ztrain::bench
