#pragma once
// Brings what each node has written of a snapshot to the next node. Internal to checkpoint.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/neighbours/node_ring.hpp"
#include "checkpoint/rank_group.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

/// By the thread that trains, since it alone communicates: in parts, so that training stands still for a
/// little at a time.
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

}  // namespace ztrain::checkpoint
