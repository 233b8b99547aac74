#pragma once
// Translates a deck into files of other programs.

#include <string>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::translate {

struct Translated {
  std::string text;
  std::vector<std::string>
      remarks;  ///< a line for each key of the deck without a counterpart, or that differs
};

/// Returns DeepSpeed's JSON.
Translated to_deepspeed(const config::Deck& deck);

/// Returns Accelerate's YAML. ranks: of the run; 0 leaves num_processes to the launcher.
Translated to_accelerate(const config::Deck& deck, int ranks);

}  // namespace ztrain::translate
