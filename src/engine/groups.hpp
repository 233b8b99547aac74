#pragma once
// The communicators that Programs need, made before any of their ops is bound.

#include <vector>

#include "program/ir/program.hpp"
#include "runtime/comm/mesh_comms.hpp"

namespace ztrain::engine {

/// Collective over the mesh: makes those of all ranks' Programs, this rank's among them, and returns the
/// mesh.
runtime::Mesh& with_groups(runtime::Mesh& mesh, const std::vector<const program::Program*>& programs);

/// The communicator that an op's message goes over: of its group, or of the pair of its direction.
runtime::Communicator& communicator_of(runtime::Mesh& mesh, const program::Op& op);

}  // namespace ztrain::engine
