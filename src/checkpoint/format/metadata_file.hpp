#pragma once
// Checksums of files, because HDF5 has none over all of a file: it reads damaged ones as other values, walks
// them without end, or crashes. metadata.json vouches for index.h5, which vouches for the shard files: for
// their tensors block by block, and for their frames, the bytes that belong to no tensor. Frames are what
// HDF5 needs, and padding. ztrain does not read them, but people's tools do.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

/// Writes metadata.json into the folder, durably: the metadata for readers without HDF5; as "index_checksum"
/// the checksum of index.h5, which must be complete; and as "metadata_checksum" that of this file's own text
/// without it.
void write_metadata_file(const std::filesystem::path& folder, const nlohmann::json& metadata,
                         const char* key = "checkpoint.folder");

/// Must be called before index.h5 is opened. Throws Damaged, with what to do, if index.h5 does not have its
/// checksum, or if there is none.
void require_intact_index(const std::filesystem::path& folder);
/// Does the same, and reads the index.
Index read_intact_index(const std::filesystem::path& folder);

/// Throws Damaged if metadata.json differs from `metadata`, which comes from an intact index.h5.
void require_same_metadata(const std::filesystem::path& folder, const nlohmann::json& metadata);

/// Returns whether metadata.json has a checksum of itself, which versions before 5 do not write. Throws
/// Damaged if its text does not have this checksum.
bool require_intact_metadata(const std::filesystem::path& folder);

/// Returns the XXH3-64 of the file's bytes outside the rows' pieces, in their order. Throws Error if the file
/// cannot be read.
std::uint64_t frame_checksum(const PosixFile& file, std::span<const PieceRow> rows);

/// Returns the checksum of `count` bytes from an offset on, block by block, with the previous sum as each
/// block's seed.
std::uint64_t checksum_of(const PosixFile& file, std::int64_t offset, std::int64_t count,
                          std::uint64_t seed = 0);

}  // namespace ztrain::checkpoint
