#pragma once
// Prints the field table as a template to start from and as the reference, and prints the resolved deck.

#include <cstdint>
#include <string>

#include "config/deck.hpp"

namespace ztrain::config {

/// Returns a commented deck with every key, its default, unit, legal values and documentation. It loads as it
/// is: keys that must be given have an example; the others are commented out as `#key = default`.
std::string deck_template();

/// Returns docs/inputs.md.
std::string inputs_markdown();

/// Returns every key with its value and, as a comment, the value's source. A key without effect is commented
/// out. It loads to the same deck.
std::string resolved_toml(const Deck& deck);

/// Returns the identity of what shapes the computed numbers: model, data settings, batch, mesh, precision,
/// optimizer, schedule, seed and length. Output, checkpoints, strategy, recomputation and file names are not
/// part of it. Call it after validate_for_ranks, which resolves the mesh.
std::uint64_t deck_hash(const Deck& deck);

}  // namespace ztrain::config
