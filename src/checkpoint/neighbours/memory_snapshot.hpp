#pragma once
// A snapshot in the memory of the nodes. It is a checkpoint each of whose files lies on the node of the ranks
// that write it, and once more on the next node, so any one node may be lost. Files go over MPI, because
// sockets between the writing threads would need addresses, secrets and failures of their own beside a
// library that has the fast network already.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/background_save.hpp"
#include "checkpoint/neighbours/node_ring.hpp"
#include "checkpoint/rank_group.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

/// Copies each node's files of a snapshot to the next node. Only the training thread
/// communicates, so it does this, in parts, to stop training only briefly each time.
class NeighbourExchange {
 public:
  /// Collective. unfinished is the folder of this rank's node, with its file, and at rank 0 also the index.
  /// turns is the number of calls of advance() over which the bytes are spread.
  NeighbourExchange(const NodeRing& ring, std::filesystem::path unfinished, int turns);

  /// Collective. Sends the next parts. Returns true once all are there. If anything has failed on any rank,
  /// throws AgreedError at the end: until then all go on, because others wait.
  bool advance();
  /// Returns the bytes that this rank has sent so far.
  std::int64_t sent() const { return sent_.at; }

 private:
  struct Part {
    std::optional<Lane> lane;
    std::optional<PosixFile> file;
    std::int64_t at = 0;  ///< offset in the lane
    std::vector<std::byte> bytes;
    std::int64_t next() const;
  };

  void learn_files();
  void open_files();
  void spread_index();
  void round();
  void attempt(const std::function<void()>& work);

  NodeRing ring_;
  std::filesystem::path unfinished_;
  Group world_ = Group::world();
  std::vector<std::string> names_;   ///< name of each node's file, by node; "": it has none
  std::vector<std::int64_t> sizes_;  ///< bytes of each node's file, by node
  std::int64_t rounds_ = 0, per_turn_ = 1;
  Part sent_, received_;
  std::string error_;
};

/// Writes a snapshot beside training, then sends it from the training thread. As with BackgroundSave, one
/// thread makes all calls, and nothing else may write to the states while this lives.
class MemorySnapshot {
 public:
  /// saving writes into the folder of this rank's node (SaveOptions::node_of). turns is the number of calls
  /// of advance() over which sending is spread.
  MemorySnapshot(Saving saving, const NodeRing& ring, std::filesystem::path folder, std::int64_t step,
                 int turns);

  bool works() const { return save_->works(); }
  /// Collective; works() must be false on every rank. Returns true once the snapshot is complete on all
  /// nodes. Throws NotSaved and removes what there is of the snapshot; then it must not be called again.
  bool advance();
  /// Collective. Does the same until the end and waits for all ranks; calls idle again and again meanwhile.
  void finish(const std::function<void()>& idle);

  std::int64_t step() const { return step_; }
  /// Returns the bytes that this rank has written and sent so far.
  std::int64_t done() const { return save_->written() + (exchange_ ? exchange_->sent() : 0); }
  std::int64_t bytes() const { return save_->bytes(); }

 private:
  bool advance_or_fail();

  NodeRing ring_;
  std::filesystem::path folder_;
  std::int64_t step_;
  int turns_;
  std::unique_ptr<BackgroundSave> save_;
  std::unique_ptr<NeighbourExchange> exchange_;  ///< set once the snapshot is written
};

}  // namespace ztrain::checkpoint
