#pragma once
// The frame of a shard file: the bytes that no piece has, which are what HDF5 needs and padding. Nothing of
// ztrain's reads them, but people's tools do.

#include <cstdint>
#include <span>

#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

/// XXH3-64 of the file's bytes outside the rows' pieces, in their order. Throws Error where it cannot be
/// read.
std::uint64_t frame_checksum(const PosixFile& file, std::span<const PieceRow> rows);

/// Of `count` bytes from an offset on, block by block, with the sum of those before as each one's seed.
std::uint64_t checksum_of(const PosixFile& file, std::int64_t offset, std::int64_t count,
                          std::uint64_t seed = 0);

}  // namespace ztrain::checkpoint
