#pragma once
// Connections of messages, made before the steps. NCCL connects a group at its first collective, and a pair
// at its first message, by exchanges between the hosts, which wait for each other. Within a step such waits
// may form a circle: receives are begun early, and the proof of no deadlock takes a start as one that never
// waits.

#include <vector>

#include "memory/provider.hpp"
#include "program/ir/program.hpp"
#include "runtime/comm/mesh_comms.hpp"

namespace ztrain::engine {

/// Collective over the mesh: makes the communicators of all ranks' Programs, as with_groups does, sends one
/// message of each kind and magnitude that they send, and returns the mesh once all have arrived. Where
/// messages need no connections it sends none. memory: of the device; what is taken of it is given back.
runtime::Mesh& with_connections(const runtime::Session& session, runtime::Mesh& mesh,
                                memory::Provider& memory,
                                const std::vector<const program::Program*>& programs);

}  // namespace ztrain::engine
