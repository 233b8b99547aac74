#pragma once
// Snapshots in the memory of the nodes (checkpoint.memory_copies), between checkpoints.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/neighbours/memory_snapshot.hpp"
#include "train/audits.hpp"
#include "train/snapshot_store.hpp"

namespace ztrain::train {

/// Takes snapshots and brings them to other nodes behind the steps. Owns their store and the snapshot that is
/// under way. Nothing happens if checkpoint.memory_copies is 0. Run and audits outlive it.
class Snapshots {
 public:
  Snapshots(Run& run, Audits& audits) : run_(run), audits_(audits) {}

  /// Collective, before a checkpoint is looked for. Makes a snapshot a checkpoint if it is newer than all.
  void open(const Patience& patience);
  /// Collective. Makes the newest snapshot a checkpoint if it is newer than all but the damaged ones, and
  /// takes its step out of `damaged`.
  void publish_newest(std::set<std::int64_t>& damaged) const;
  /// Collective. Removes the snapshots that were there: the run has come back to what it could, so they are
  /// on disk by now, or nobody's. Throws AgreedError if there is no room for new ones.
  void clear();
  /// Removes all that the run has in the memory of the nodes.
  void remove() const;

  bool is_due() const;
  bool works() const { return snapshot_ && snapshot_->works(); }
  /// Collective. Takes a snapshot of a state from which training may go on. If the one before is not complete
  /// yet, the next interval tries again: training does not wait for it.
  void take();
  /// Collective. Goes on with what is under way, once no rank works on its part by itself.
  void advance();
  /// Collective. Waits for what is under way, because its room is wanted.
  void finish();
  /// Gives up what is under way.
  void drop() { snapshot_.reset(); }

 private:
  void warn(std::int64_t step, const std::string& failure);
  void end_snapshot(const std::string& failure);

  Run& run_;
  Audits& audits_;
  std::optional<SnapshotStore> store_;
  std::optional<checkpoint::MemorySnapshot> snapshot_;  ///< under way
  bool told_ = false;                                   ///< Whether a line has said that there are snapshots.
};

}  // namespace ztrain::train
