#pragma once
// Where a run's snapshots are in the memory of its nodes: made, held and cleared, and looked through at the
// start. What is in them is src/checkpoint/neighbours's.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/neighbours/node_ring.hpp"
#include "config/deck.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "train/output_folder.hpp"

namespace ztrain::train {

class SnapshotStore {
 public:
  /// Collective. Rank 0 holds the folder of checkpoints. On each node the first rank makes and holds a
  /// folder, and removes what dead runs have left beside it. Throws AgreedError.
  SnapshotStore(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                const Patience& patience);

  const checkpoint::NodeRing& ring() const { return ring_; }
  const std::filesystem::path& folder() const { return folder_; }  ///< of this rank's node

  /// Collective: makes the newest snapshot a checkpoint where it is newer than all of these but the damaged
  /// ones, and says so. The step of it; -1: there is none.
  std::int64_t publish_newest(const std::set<std::int64_t>& damaged) const;
  /// Collective, before a snapshot: the folder may be gone, such as when its user logs out of the node.
  /// Throws NotSaved where it cannot be made and held anew.
  void hold_again();
  /// No snapshot stays in the memory of this rank's node. Never throws.
  void clear() const;
  /// Nothing of this run stays there: what it ends with is on disk. Never throws.
  void remove() const;
  /// Collective: throws AgreedError where a node's folder has no room for so many bytes.
  void require_room(std::int64_t bytes) const;

 private:
  /// What the run's snapshots are known by, on every rank: not by what those of another folder are, of which
  /// this one is a copy.
  std::string token_of(const config::Deck& deck) const;

  const runtime::Session& session_;
  telemetry::Console& console_;
  std::filesystem::path checkpoints_, folder_;
  checkpoint::NodeRing ring_;
  bool first_;                      ///< of the ranks of its node
  std::optional<HeldFolder> held_;  ///< there
};

}  // namespace ztrain::train
