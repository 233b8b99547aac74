#pragma once
// Internal to checkpoint. Finds what a checkpoint will hold, as all ranks see it together, and what one rank
// writes. Writes these bytes into the shard file of the rank, without communication. Tests replace the calls
// that write by a library, so the calls are pwrite and not io_uring.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/rank_group.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::checkpoint {

/// Collective. Returns the union of all ranks' catalogs, in rank order: ranks of a pipeline hold parameters
/// that others do not. Only ranks whose catalog differs from rank 0's send theirs. Throws AgreedError naming
/// a parameter or state that two ranks describe differently.
Catalog agree_on_catalog(const Group& world, const Place& place, std::span<const StateShard> states);

struct OwnPiece {
  PieceRow row;
  const std::byte* data = nullptr;
  const memory::Provider* memory = nullptr;  ///< memory as in StateShard
};

/// Returns the pieces of this rank's shards that this rank owns. Does not communicate.
std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog);

struct WriteOptions {
  const char* key = "checkpoint.folder";      ///< key that names the file's folder, for messages
  int lanes = checkpoint_lanes;               ///< number of threads, each with a buffer of part_bytes
  std::int64_t part_bytes = checkpoint_part;  ///< bytes of one write, a multiple of checksum_block
  std::int64_t least_direct = std::int64_t{16} << 10;  ///< bytes from which a part bypasses the page cache
  /// Provider of the buffers: at most checkpoint_buffers(lanes, part_bytes), until all is written.
  memory::Provider* host = &memory::host_memory();
};

/// Writes and syncs this rank's pieces and returns the checksums of their blocks. Each row's first_checksum
/// counts from this rank's first. The caller's thread calls progress. The file has its size already, and
/// ranks write to it at once.
///
/// Whole pages bypass the page cache if the file system allows that. The processor then touches each byte
/// once, writes of ranks into one file do not wait for each other, and nothing is left for the sync to do.
std::vector<std::int64_t> write_pieces(const std::filesystem::path& path, std::vector<OwnPiece>& pieces,
                                       const Progress& progress, const WriteOptions& options = {});

}  // namespace ztrain::checkpoint
