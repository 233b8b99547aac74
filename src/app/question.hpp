#pragma once
// What of a deck's data the commands must know that compile a deck and train on none.

#include <string>
#include <vector>

#include "plan/cost.hpp"

namespace ztrain::app {

/// The deck as `plan` and `bench` ask about it, on one rank. Its data are looked at only where the deck
/// leaves model.vocab_size to them; throws Error where they do not say it either, or are not here.
plan::Question question_for(const std::string& deck, const std::vector<std::string>& overrides);

}  // namespace ztrain::app
