#pragma once
// Makes, holds and clears the folders of a run's snapshots in the memory of its nodes, and looks through them
// at the start. src/checkpoint/neighbours writes their contents.

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
  /// folder, and removes those of dead runs. Throws AgreedError.
  SnapshotStore(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                const Patience& patience);

  const checkpoint::NodeRing& ring() const { return ring_; }
  const std::filesystem::path& folder() const { return folder_; }  ///< folder on this rank's node

  /// Collective. Makes the newest snapshot a checkpoint if it is newer than every checkpoint that is not
  /// damaged, and prints that. Returns its step, or -1 if there is none.
  std::int64_t publish_newest(const std::set<std::int64_t>& damaged) const;
  /// Collective, before a snapshot. Makes and holds the folder again if it is gone, as after its user logged
  /// out of the node. Throws NotSaved if that fails.
  void hold_again();
  /// Removes all snapshots from the memory of this rank's node. Never throws.
  void clear() const;
  /// Removes everything of this run from there, because its last state is on disk. Never throws.
  void remove() const;
  /// Collective. Throws AgreedError if a node's folder has no room for this many bytes.
  void require_room(std::int64_t bytes) const;

 private:
  /// Returns the token that names the run's snapshots, on every rank. If the folder of checkpoints is a copy
  /// of another run's folder, makes a new token.
  std::string token_of(const config::Deck& deck) const;

  const runtime::Session& session_;
  telemetry::Console& console_;
  std::filesystem::path checkpoints_, folder_;
  checkpoint::NodeRing ring_;
  bool first_;                      ///< whether this is the first rank of its node
  std::optional<HeldFolder> held_;  ///< the folder on this node
};

}  // namespace ztrain::train
