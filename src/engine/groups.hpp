#pragma once
// The communicators that Programs need, made before any of their ops is bound.

#include <cstdint>
#include <vector>

#include "program/ir/program.hpp"
#include "runtime/comm/mesh_comms.hpp"

namespace ztrain::engine {

/// Which communicator a message goes over: the same on all its ranks.
struct GroupKey {
  std::uint32_t axes;    ///< AxisSet::bits()
  runtime::Queue queue;  ///< of the sender
  int from, to;          ///< of a pair, as in runtime::GroupNeed
  auto operator<=>(const GroupKey&) const = default;
};
GroupKey key_of(const program::Program& program, const program::Op& op);

/// Collective over the mesh: makes those of all ranks' Programs, this rank's among them, and returns the
/// mesh.
runtime::Mesh& with_groups(runtime::Mesh& mesh, const std::vector<const program::Program*>& programs);

/// The communicator that an op's message goes over: of its group, or of the pair of its direction.
runtime::Communicator& communicator_of(runtime::Mesh& mesh, const program::Op& op);

}  // namespace ztrain::engine
