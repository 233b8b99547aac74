#include "job/snapshot_memory.hpp"

#include <vector>

#include "checkpoint/rank_group.hpp"
#include "layout/layout.hpp"
#include "plan/memory.hpp"

namespace ztrain::job {
namespace {

/// With audits others have room for a copy as well.
std::int64_t saved_by_this_rank(const program::Job& job) {
  const program::Program& p = job.load();
  return owns(Coordinate(p.mesh, p.rank)) ? plan::copied_bytes(plan::memory_of(job.programs.all())) : 0;
}

}  // namespace

std::int64_t snapshot_bytes_of_node(const runtime::Session& session, const program::Job& job,
                                    const config::Deck& deck) {
  if (deck.checkpoint.memory_copies == 0) return 0;
  const auto saved = checkpoint::Group::world().all_gather(saved_by_this_rank(job));
  std::vector<std::int64_t> of_node(static_cast<std::size_t>(session.nodes()));
  for (std::size_t rank = 0; rank < saved.size(); ++rank)
    of_node[static_cast<std::size_t>(session.node_of(static_cast<int>(rank)))] += saved[rank];
  const int own = session.node(), before = (own + session.nodes() - 1) % session.nodes();
  return plan::snapshot_bytes(of_node[static_cast<std::size_t>(own)],
                              before == own ? 0 : of_node[static_cast<std::size_t>(before)],
                              session.ranks_on_node());
}

}  // namespace ztrain::job
