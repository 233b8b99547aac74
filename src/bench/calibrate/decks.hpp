#pragma once
// The built-in decks whose steps are timed to calibrate a machine.

#include <string>
#include <vector>

namespace ztrain::bench {

struct CalibrationDeck {
  std::string name;
  std::string text;  ///< TOML
};

/// Returns the decks for a job of `ranks` ranks. quick: two small ones, whose rates are rough.
std::vector<CalibrationDeck> calibration_decks(int ranks, bool quick);

}  // namespace ztrain::bench
