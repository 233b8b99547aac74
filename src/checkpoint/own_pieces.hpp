#pragma once
// The bytes that one rank writes into its shard file. Internal to checkpoint; nothing here communicates.

#include <cstdint>
#include <filesystem>
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

/// Writes and syncs this rank's pieces and gives the checksums of their blocks. Each row's first_checksum
/// counts from this rank's first.
std::vector<std::int64_t> write_pieces(const std::filesystem::path& path, std::vector<OwnPiece>& pieces,
                                       const Progress& progress);

}  // namespace ztrain::checkpoint
