#pragma once
// A job that does not fit is refused before any rank allocates.

#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "checkpoint/neighbours/node_ring.hpp"
#include "config/deck.hpp"
#include "program/jobs/compile.hpp"
#include "program/jobs/inference.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// Whether the device has memory beside the node's.
bool has_memory_of_its_own(const runtime::Device& device);
/// Collective: ranks that share this rank's device.
std::int64_t ranks_on(const runtime::Session& session, const runtime::Device& device);

/// The nodes of the session, each of which holds what the one before it saves.
checkpoint::NodeRing ring_of(const runtime::Session& session);

/// Collective: bytes of this rank's node that snapshots in its memory take (checkpoint.memory_copies): two of
/// what its ranks save and of what those of the node before it do, and what its ranks send. 0 for a deck
/// without snapshots.
std::int64_t snapshot_bytes_of_node(const runtime::Session& session, const program::Job& job,
                                    const config::Deck& deck);

/// Collective. The ranks of a node, and those of a GPU, allocate together, so they are counted together
/// against its memory; and each rank against cluster.device_memory, where the deck gives one. pinned: bytes
/// of host memory beside the job's own that this rank copies inputs, results and communication through.
/// Throws runtime::AgreedError on every rank, with the memory table and the cheapest changes of the deck that
/// make it fit (deck null: without those).
void require_memory(const runtime::Session& session, runtime::Device& device, const program::Job& job,
                    std::int64_t pinned, const config::Deck* deck);

/// The same for generation, against the memory of the nodes or GPUs.
void require_memory(const runtime::Session& session, runtime::Device& device, const program::Inference& job,
                    std::int64_t pinned);

}  // namespace ztrain::job
