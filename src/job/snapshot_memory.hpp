#pragma once
// What snapshots in the memory of nodes take of it (checkpoint.memory_copies).

#include <cstdint>

#include "config/deck.hpp"
#include "program/jobs/compile.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// Collective: bytes of this rank's node, for two snapshots of what its ranks save and of what those of the
/// node before it do, and for what its ranks send. 0 for a deck without snapshots.
std::int64_t snapshot_bytes_of_node(const runtime::Session& session, const program::Job& job,
                                    const config::Deck& deck);

}  // namespace ztrain::job
