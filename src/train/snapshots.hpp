#pragma once
// Takes snapshots in the memory of the nodes (checkpoint.memory_copies), between checkpoints.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/neighbours/memory_snapshot.hpp"
#include "train/audits.hpp"
#include "train/snapshot_store.hpp"

namespace ztrain::train {

/// Takes snapshots after steps and copies them to other nodes. Owns their store and the snapshot under way.
/// Does nothing if checkpoint.memory_copies is 0. Run and audits outlive it.
class Snapshots {
 public:
  Snapshots(Run& run, Audits& audits) : run_(run), audits_(audits) {}

  /// Collective, before a checkpoint is looked for. Makes a snapshot a checkpoint if it is newer than all of
  /// them.
  void open(const Patience& patience);
  /// Collective. Makes the newest snapshot a checkpoint if it is newer than every undamaged one, and takes
  /// its step out of `damaged`.
  void publish_newest(std::set<std::int64_t>& damaged) const;
  /// Collective. Removes the snapshots of earlier runs. The run has resumed by now, so they are on disk or of
  /// no use. Throws AgreedError if there is no room for new ones.
  void clear();
  /// Removes all that the run has in the memory of the nodes.
  void remove() const;

  bool is_due() const;
  bool works() const { return snapshot_ && snapshot_->works(); }
  /// Collective. Takes a snapshot of a state from which training may go on. Does nothing if the previous one
  /// is not complete yet: training does not wait for it, and the next interval tries again.
  void take();
  /// Collective. Advances the snapshot under way, once no rank is at work on its part.
  void advance();
  /// Collective. Waits for the snapshot under way, because its memory is needed.
  void finish();
  /// Gives up the snapshot under way.
  void drop() { snapshot_.reset(); }

 private:
  void warn(std::int64_t step, const std::string& failure);
  void end_snapshot(const std::string& failure);

  Run& run_;
  Audits& audits_;
  std::optional<SnapshotStore> store_;
  std::optional<checkpoint::MemorySnapshot> snapshot_;  ///< the snapshot under way
  bool told_ = false;                                   ///< A line has said that there are snapshots.
};

}  // namespace ztrain::train
