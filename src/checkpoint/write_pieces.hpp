#pragma once
// Internal to checkpoint. Writes the bytes of one rank's pieces into its shard file, without communication.
// Tests replace the calls that write by a library, so the calls are pwrite and not io_uring.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/own_pieces.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::checkpoint {

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
