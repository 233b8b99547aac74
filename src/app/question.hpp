#pragma once
// Tells the commands that compile a deck without training on it what they must know of its data.

#include <string>
#include <vector>

#include "plan/cost.hpp"

namespace ztrain::app {

/// Returns the deck as `plan` and `bench` ask about it, on one rank. Looks at the data only if the deck
/// leaves model.vocab_size to them. Throws Error if they do not say it, or are not on this machine.
plan::Question question_for(const std::string& deck, const std::vector<std::string>& overrides);

}  // namespace ztrain::app
