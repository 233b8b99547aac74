#include "engine/groups.hpp"

#include <set>

#include "base/error.hpp"
#include "engine/queues.hpp"

namespace ztrain::engine {
namespace {

using program::CommKind;

/// The stream on which the other side sends what is received on this one.
program::Stream sender_of(program::Stream stream) {
  using enum program::Stream;
  switch (stream) {
    case from_previous:
      return to_next;
    case from_next:
      return to_previous;
    case beside_from_previous:
      return beside_to_next;
    case beside_from_next:
      return beside_to_previous;
    default:
      return stream;
  }
}

/// own: this rank's index in the op's group.
runtime::GroupNeed need_of(const program::Op& op, int own) {
  runtime::GroupNeed need{op.comm.axes, queue_of(op.stream)};
  if (op.comm.kind == CommKind::send) need.from = own, need.to = op.comm.peer;
  if (op.comm.kind == CommKind::recv) {
    need.from = op.comm.peer, need.to = own;
    need.queue = queue_of(sender_of(op.stream));
  }
  need.work = queue_of(op.stream);
  return need;
}

GroupKey key_of(const runtime::GroupNeed& need) {
  return {need.axes.bits(), need.queue, need.from, need.to};
}

/// Each once.
std::vector<runtime::GroupNeed> groups_of(const std::vector<const program::Program*>& programs) {
  std::set<GroupKey> known;
  std::vector<runtime::GroupNeed> needs;
  for (const program::Program* p : programs) {
    const Coordinate at(p->mesh, p->rank);
    for (const program::Op& op : p->ops) {
      if (!op.communicates()) continue;
      const runtime::GroupNeed need = need_of(op, at.index_in(op.comm.axes));
      if (known.insert(key_of(need)).second) needs.push_back(need);
    }
  }
  return needs;
}

}  // namespace

GroupKey key_of(const program::Program& program, const program::Op& op) {
  return key_of(need_of(op, Coordinate(program.mesh, program.rank).index_in(op.comm.axes)));
}

runtime::Mesh& with_groups(runtime::Mesh& mesh, const std::vector<const program::Program*>& programs) {
  mesh.make_groups(groups_of(programs));
  return mesh;
}

runtime::Communicator& communicator_of(runtime::Mesh& mesh, const program::Op& op) {
  const runtime::GroupNeed need = need_of(op, mesh.coordinate().index_in(op.comm.axes));
  if (need.from < 0) return mesh.over(need.axes, need.queue);
  runtime::Communicator* pair = mesh.neighbour(need.axes, need.from, need.to, need.queue, need.work);
  ASSERT(pair, "{} has no communicator from {} to {}", op.name, need.from, need.to);
  return *pair;
}

}  // namespace ztrain::engine
