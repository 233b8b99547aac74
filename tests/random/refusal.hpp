#pragma once
// Whether the refusal of a deck says what to change.

#include <string>

namespace ztrain::random_decks {

/// The first key of the deck that a message names, "" where it names none.
std::string key_of(const std::string& refusal);

/// Whether it names a key and is a row of the table of refused combinations, or tells of what no table has.
bool is_of_a_deck(const std::string& refusal);

}  // namespace ztrain::random_decks
