#pragma once
// What one rank writes into its shard file. Internal to checkpoint; nothing here communicates.

#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"

namespace ztrain::checkpoint {

struct OwnPiece {
  PieceRow row;
  const std::byte* data = nullptr;
  const memory::Provider* memory = nullptr;  ///< as StateShard::memory
};

/// The pieces of this rank's shards that this rank owns.
std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog);

}  // namespace ztrain::checkpoint
