#pragma once
// A snapshot in the memory of the nodes: a checkpoint each of whose files lies on the node of the ranks that
// write it, and once more on the next node. Any node may go, and the others have all of it.

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

/// Brings what each node has written of a snapshot to the next node. By the thread that trains, since it
/// alone communicates: in parts, so that training stands still for a little at a time.
class NeighbourExchange {
 public:
  /// Collective. unfinished: the folder of this rank's node, with its file; at rank 0 also the index. turns:
  /// calls of advance() over which the bytes are spread.
  NeighbourExchange(const NodeRing& ring, std::filesystem::path unfinished, int turns);

  /// Collective: the next parts. True: all is there. Throws AgreedError at the end where anything has failed
  /// on any rank: until then all go on, since others wait.
  bool advance();
  /// Bytes that this rank has sent so far.
  std::int64_t sent() const { return sent_.at; }

 private:
  struct Part {
    std::optional<Lane> lane;
    std::optional<PosixFile> file;
    std::int64_t at = 0;  ///< of the lane
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
  std::vector<std::string> names_;   ///< by node, of its file; "": it has none
  std::vector<std::int64_t> sizes_;  ///< by node
  std::int64_t rounds_ = 0, per_turn_ = 1;
  Part sent_, received_;
  std::string error_;
};

/// Written beside training, and then sent by the thread that trains. As with BackgroundSave one thread makes
/// all calls, and nobody else may write to the states while this lives.
class MemorySnapshot {
 public:
  /// saving: into the folder of this rank's node, of SaveOptions::node_of. turns: calls of advance() over
  /// which sending is spread.
  MemorySnapshot(Saving saving, const NodeRing& ring, std::filesystem::path folder, std::int64_t step,
                 int turns);

  bool works() const { return save_->works(); }
  /// Collective, where works() is false on every rank. True: the snapshot is whole on all nodes. Throws
  /// NotSaved; then there is nothing more to do, and what there is of it is removed.
  bool advance();
  /// Collective: the same until the end, waiting for all ranks. idle: called again and again meanwhile.
  void finish(const std::function<void()>& idle);

  std::int64_t step() const { return step_; }
  /// Bytes that this rank has written and sent so far.
  std::int64_t done() const { return save_->written() + (exchange_ ? exchange_->sent() : 0); }
  std::int64_t bytes() const { return save_->bytes(); }

 private:
  bool advance_or_fail();

  NodeRing ring_;
  std::filesystem::path folder_;
  std::int64_t step_;
  int turns_;
  std::unique_ptr<BackgroundSave> save_;
  std::unique_ptr<NeighbourExchange> exchange_;  ///< once it is written
};

}  // namespace ztrain::checkpoint
