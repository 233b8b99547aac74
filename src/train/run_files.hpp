#pragma once
// What a run reads and what it writes, as two lists: no key may name what another one has written.

#include "config/deck.hpp"

namespace ztrain::train {

/// Throws Error naming both keys where a run would overwrite, move or remove what it reads (the deck, data,
/// the model that it starts from), or where what two keys have written would be in each other's way. Looks at
/// the files that are there, and changes nothing.
void require_apart(const config::Deck& deck);

/// Throws Error naming the key where a run could not make or write what it writes, as far as that shows
/// without making anything: this user may not, or something else is in the way.
void require_writable(const config::Deck& deck);

}  // namespace ztrain::train
