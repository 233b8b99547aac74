#pragma once
// The bytes of one rank's pieces on their way into its shard file. Internal to checkpoint; nothing here
// communicates.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/own_pieces.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::checkpoint {

struct WriteOptions {
  const char* key = "checkpoint.folder";               ///< that names the file's folder, for messages
  int lanes = checkpoint_lanes;                        ///< threads, each with a buffer of part_bytes
  std::int64_t part_bytes = checkpoint_part;           ///< a multiple of checksum_block: of one write
  std::int64_t least_direct = std::int64_t{16} << 10;  ///< bytes of a part that pass the page cache by
  /// Of which the buffers are: checkpoint_buffers(lanes, part_bytes) at most, until it is written.
  memory::Provider* host = &memory::host_memory();
};

/// Writes and syncs this rank's pieces and gives the checksums of their blocks. Each row's first_checksum
/// counts from this rank's first. progress is called by the caller's thread. The file has its size, and ranks
/// write to it at once.
///
/// Whole pages go past the page cache where the file system can do that: the processor then touches each byte
/// once, writes of ranks into one file do not wait for each other, and nothing is left for the sync to do.
std::vector<std::int64_t> write_pieces(const std::filesystem::path& path, std::vector<OwnPiece>& pieces,
                                       const Progress& progress, const WriteOptions& options = {});

}  // namespace ztrain::checkpoint
