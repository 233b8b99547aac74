#pragma once
// Small decks and the messages of broken ones, for the tests of config.

#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
#include "tests/support/error_of.hpp"

namespace ztrain::config {

/// A deck that is legal as it stands; lines are added below it.
inline const std::string base = "[data]\ntrain = [\"*.bin\"]\n[batch]\nglobal = 8\n[run]\nsteps = 100\n";

inline Deck deck_of(const std::string& more = "", const std::vector<std::string>& overrides = {}) {
  return parse_deck(base + more, "input.toml", overrides);
}

using test::error_of;
inline std::string deck_error(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { deck_of(more, overrides); });
}
inline std::string rank_error(const std::string& more, int ranks, int per_node = 8,
                              const std::vector<std::string>& overrides = {}) {
  return error_of([&] {
    Deck deck = deck_of(more, overrides);
    validate_for_ranks(deck, ranks, per_node);
  });
}
inline Deck on_ranks(const std::string& more, int ranks, int per_node = 8,
                     const std::vector<std::string>& overrides = {}) {
  Deck deck = deck_of(more, overrides);
  validate_for_ranks(deck, ranks, per_node);
  return deck;
}

}  // namespace ztrain::config
