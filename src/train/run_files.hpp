#pragma once
// Lists the files that a run reads and writes, so that no key names what another key writes.

#include "config/deck.hpp"

namespace ztrain::train {

/// Throws Error naming both keys if a run would overwrite, move or remove what it reads (the deck, data, the
/// model that it starts from), or if files of two keys would collide. Looks at existing files and changes
/// nothing.
void require_apart(const config::Deck& deck);

/// Throws Error naming the key if a run could not make or write its files, as far as that shows without
/// making any: this user may not, or something else is in the way.
void require_writable(const config::Deck& deck);

}  // namespace ztrain::train
