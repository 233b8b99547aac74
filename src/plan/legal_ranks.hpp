#pragma once
// How many ranks a deck may have.

#include "config/deck.hpp"
#include "kernel_interface/target.hpp"

namespace ztrain::plan {

/// The largest number of ranks, up to `most`, that the deck's mesh, batch and model take, with up to
/// ranks_per_node on each node. Throws Error where none is: that of `most` ranks, and whether the deck fixes
/// their number.
int largest_legal_ranks(const config::Deck& deck, int most, int ranks_per_node, Target target);

}  // namespace ztrain::plan
