#pragma once
// The folder where a node keeps its part of a run's snapshots: step_N folders like those of checkpoints, each
// with the files of this node and of the previous node, and the index of all. Nothing here communicates.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/format.hpp"

namespace ztrain::checkpoint {

/// Key that messages about the folder name.
inline constexpr const char* memory_key = "checkpoint.memory_folder";

/// Name of a file in the folder of a run's checkpoints.
inline constexpr const char* snapshot_token_name = ".snapshots";

/// Returns the token in that file, and makes the file. The token names a run's snapshots on any node, so
/// snapshots of a removed folder belong to nobody. `anew` makes a new token, and the old snapshots then
/// belong to nobody.
std::string snapshot_token(const std::filesystem::path& checkpoints, bool anew);

/// Returns memory/ztrain-TOKEN.
std::filesystem::path node_folder(const std::filesystem::path& memory, const std::string& token);

/// Makes the folder, readable by this user alone. memory must exist. Throws Error that names
/// checkpoint.memory_folder.
void make_node_folder(const std::filesystem::path& folder);
/// Writes into a held folder which checkpoints it belongs to.
void name_owner(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// Returns whether it belongs to checkpoints elsewhere that exist and have the same token; the ones here are
/// then a copy.
bool belongs_to_another(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// Removes neighbouring folders of dead runs: nobody holds their lock, and they belong to the same
/// checkpoints, or nothing was written there for an hour. Returns their number.
int remove_leftovers(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// A snapshot as one node has it.
struct HeldSnapshot {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::string seal;               ///< seal of its metadata.json, equal for all parts of one snapshot
  std::vector<FileEntry> shards;  ///< name and bytes
  std::string fault;              ///< why it cannot be read, and then there is no seal; "": it can
};
/// Returns the snapshots, the newest first. Leaves out those without metadata.json, which are incomplete.
std::vector<HeldSnapshot> snapshots_in(const std::filesystem::path& folder);

/// Returns the bytes of all files in the folder.
std::int64_t bytes_in(const std::filesystem::path& folder);
/// Returns the bytes that all starts of the run with these checkpoints have on this node.
std::int64_t bytes_of_run(const std::filesystem::path& memory, const std::filesystem::path& checkpoints);

/// Removes all snapshots. Never throws.
void remove_snapshots(const std::filesystem::path& folder);

/// Throws Error naming the key if the file system has no room for this many bytes.
void require_room_in_memory(const std::filesystem::path& folder, std::int64_t bytes);

}  // namespace ztrain::checkpoint
