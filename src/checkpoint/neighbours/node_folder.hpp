#pragma once
// Where a node keeps its part of a run's snapshots: step_N folders as those of checkpoints, each with the
// file of this node, that of the node before, and the index of all. Nothing here communicates.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/format.hpp"

namespace ztrain::checkpoint {

inline constexpr const char* memory_key = "checkpoint.memory_folder";  ///< of all that is said of it

/// A file in the folder of a run's checkpoints.
inline constexpr const char* snapshot_token_name = ".snapshots";

/// What that file says, which it makes: what a run's snapshots are known by on any node. Snapshots of a
/// folder that was removed are nobody's. anew: those there were are to be nobody's.
std::string snapshot_token(const std::filesystem::path& checkpoints, bool anew);

/// memory/ztrain-TOKEN
std::filesystem::path node_folder(const std::filesystem::path& memory, const std::string& token);

/// Makes the folder, for this user alone. memory must be there. Throws Error that names
/// checkpoint.memory_folder.
void make_node_folder(const std::filesystem::path& folder);
/// Says in it whose checkpoints it belongs to: for who holds it.
void name_owner(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// Whether it says that it belongs to checkpoints elsewhere, which are there and have the same token: those
/// here are a copy.
bool belongs_to_another(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// Removes the folders beside it that dead runs have left: nobody holds their lock, and they belong to the
/// same checkpoints, or nothing was written there for an hour. Gives their number.
int remove_leftovers(const std::filesystem::path& folder, const std::filesystem::path& checkpoints);

/// A snapshot as one node has it.
struct HeldSnapshot {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::string seal;               ///< of its metadata.json: parts of one snapshot have the same
  std::vector<FileEntry> shards;  ///< name and bytes
  std::string fault;              ///< why it cannot be read; then there is no seal. "": it can
};
/// The newest first; none that has no metadata.json, which is torn.
std::vector<HeldSnapshot> snapshots_in(const std::filesystem::path& folder);

/// Of all files in the folder.
std::int64_t bytes_in(const std::filesystem::path& folder);
/// Of all that starts of the run with these checkpoints have on this node.
std::int64_t bytes_of_run(const std::filesystem::path& memory, const std::filesystem::path& checkpoints);

/// Never throws.
void remove_snapshots(const std::filesystem::path& folder);

/// Throws Error, naming the key, where the file system has no room for so many bytes.
void require_room_in_memory(const std::filesystem::path& folder, std::int64_t bytes);

}  // namespace ztrain::checkpoint
