#pragma once
// metadata.json, which vouches for index.h5: HDF5 reads damaged files as other values, walks them without
// end, or crashes, and it has no checksum over all of a file. The shard files' bytes have theirs in index.h5.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace ztrain::checkpoint {

/// Writes metadata.json into the folder, durably: the metadata once more, for those who do not read HDF5; as
/// "index_checksum" the checksum of the bytes of index.h5, which must be complete; and as "metadata_checksum"
/// that of this file's own text without it.
void write_metadata_file(const std::filesystem::path& folder, const nlohmann::json& metadata,
                         const char* key = "checkpoint.folder");

/// To be called before index.h5 is opened. Throws Damaged, with what to do, where index.h5 does not have its
/// checksum, or there is none.
void require_intact_index(const std::filesystem::path& folder);

/// Throws Damaged where metadata.json says other than `metadata`, which is from an intact index.h5.
void require_same_metadata(const std::filesystem::path& folder, const nlohmann::json& metadata);

/// Whether metadata.json has a checksum of itself, which versions before 5 do not write. Throws Damaged where
/// its text is not, letter by letter, the one that has this checksum.
bool require_intact_metadata(const std::filesystem::path& folder);

}  // namespace ztrain::checkpoint
