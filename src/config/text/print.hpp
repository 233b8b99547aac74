#pragma once
// The field table as text: a template to start from, the reference documentation, and the deck as it was
// resolved.

#include <cstdint>
#include <string>

#include "config/deck.hpp"

namespace ztrain::config {

/// A commented deck with every key, its default, unit, legal values and documentation. It loads as it stands:
/// keys that must be given have an example; the others are commented out as `#key = default`.
std::string deck_template();

/// docs/inputs.md.
std::string inputs_markdown();

/// Every key with its value and, as a comment, where the value came from; a key without effect is commented
/// out. Loads to the same deck.
std::string resolved_toml(const Deck& deck);

/// Identity of what shapes the numbers that a run computes: model, data settings, batch, mesh, precision,
/// optimizer, schedule, seed and length. Output, checkpoints, strategy, recomputation and file names are not
/// part of it. To be taken after validate_for_ranks, which resolves the mesh.
std::uint64_t deck_hash(const Deck& deck);

}  // namespace ztrain::config
