#pragma once
// Checksums, of which HDF5 has none over all of a file: it reads damaged ones as other values, walks them
// without end, or crashes. metadata.json vouches for index.h5, and that for the shard files: for their
// tensors block by block, and for their frames, the bytes that no piece has, which are what HDF5 needs and
// padding. Nothing of ztrain's reads these, but people's tools do.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

/// Writes metadata.json into the folder, durably: the metadata once more, for those who do not read HDF5; as
/// "index_checksum" the checksum of the bytes of index.h5, which must be complete; and as "metadata_checksum"
/// that of this file's own text without it.
void write_metadata_file(const std::filesystem::path& folder, const nlohmann::json& metadata,
                         const char* key = "checkpoint.folder");

/// To be called before index.h5 is opened. Throws Damaged, with what to do, where index.h5 does not have its
/// checksum, or there is none.
void require_intact_index(const std::filesystem::path& folder);
/// The same, and reads it.
Index read_intact_index(const std::filesystem::path& folder);

/// Throws Damaged where metadata.json says other than `metadata`, which is from an intact index.h5.
void require_same_metadata(const std::filesystem::path& folder, const nlohmann::json& metadata);

/// Whether metadata.json has a checksum of itself, which versions before 5 do not write. Throws Damaged where
/// its text is not, letter by letter, the one that has this checksum.
bool require_intact_metadata(const std::filesystem::path& folder);

/// XXH3-64 of the file's bytes outside the rows' pieces, in their order. Throws Error where it cannot be
/// read.
std::uint64_t frame_checksum(const PosixFile& file, std::span<const PieceRow> rows);

/// Of `count` bytes from an offset on, block by block, with the sum of those before as each one's seed.
std::uint64_t checksum_of(const PosixFile& file, std::int64_t offset, std::int64_t count,
                          std::uint64_t seed = 0);

}  // namespace ztrain::checkpoint
