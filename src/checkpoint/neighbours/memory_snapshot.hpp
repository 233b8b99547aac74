#pragma once
// A snapshot in the memory of the nodes: a checkpoint each of whose files lies on the node of the ranks that
// write it, and once more on the next node. Any node may go, and the others have all of it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "checkpoint/background_save.hpp"
#include "checkpoint/neighbours/exchange.hpp"
#include "checkpoint/neighbours/node_ring.hpp"

namespace ztrain::checkpoint {

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
