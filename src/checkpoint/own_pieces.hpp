#pragma once
// Internal to checkpoint. Finds what a checkpoint will hold, as all ranks see it together, and what one rank
// writes into its shard file.

#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::checkpoint {

/// Collective. Returns the union of all ranks' catalogs, in rank order: ranks of a pipeline hold parameters
/// that others do not. Only ranks whose catalog differs from rank 0's send theirs. Throws AgreedError naming
/// a parameter or state that two ranks describe differently.
Catalog agree_on_catalog(const Group& world, const Layout& layout, std::span<const StateShard> states);

struct OwnPiece {
  PieceRow row;
  const std::byte* data = nullptr;
  const memory::Provider* memory = nullptr;  ///< memory as in StateShard
};

/// Returns the pieces of this rank's shards that this rank owns. Does not communicate.
std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog);

}  // namespace ztrain::checkpoint
