#pragma once
// The save of a job over all its ranks, planned and proven before any of them runs: a run whose checkpoints
// could not be written does not start.

#include <cstdint>
#include <functional>
#include <vector>

#include "checkpoint/save_plan.hpp"
#include "config/deck.hpp"
#include "model/graph.hpp"
#include "program/jobs/compile.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::job {

/// Returns the part of the rank that the job was compiled for.
checkpoint::SavePart save_part(const program::Job& job);

/// The parts of all ranks of a job, without its Programs.
class SaveParts {
 public:
  /// Compiles the persistent tensors of one rank for each different part.
  SaveParts(const model::Graph& graph, const program::JobSpec& spec);

  const std::vector<checkpoint::SavePart>& distinct() const { return distinct_; }
  /// By index over checkpoint::part_axes.
  std::vector<const checkpoint::SavePart*> by_place() const;

 private:
  std::vector<checkpoint::SavePart> distinct_;
  std::vector<std::size_t> of_place_;  ///< index into distinct_
};

/// Plans what the deck's run saves: checkpoints and, with checkpoint.memory_copies, snapshots. nodes: by
/// rank. Returns the plan of a checkpoint. Throws Error, which says what disagrees.
checkpoint::SavePlan plan_saves(const config::Deck& deck, const MeshShape& mesh,
                                const std::vector<const checkpoint::SavePart*>& parts,
                                const std::vector<std::int64_t>& nodes);

/// Returns the parts of all ranks; called on rank 0 alone.
using MakeParts = std::function<SaveParts()>;

/// Collective. Rank 0 plans the save of all ranks, and every rank compares its own part with the planned one.
/// Nothing is proven of a run that never saves. Throws AgreedError on every rank, which says what disagrees.
void prove_saves(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                 const MeshShape& mesh, const checkpoint::SavePart& own, const MakeParts& make);

/// The same for the job that this rank has compiled from the deck.
void prove_saves(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                 const program::Job& own);

}  // namespace ztrain::job
