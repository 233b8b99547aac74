#pragma once
// The folder of checkpoints: names, publication and retention. One process at a time writes to it (rank 0);
// everything here can be interrupted at any point and leaves each checkpoint either whole under a name that
// list() knows, or under a .tmp name.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// folder/step_<step>.tmp
std::filesystem::path unfinished_path(const std::filesystem::path& folder, std::int64_t step);

/// Makes the folder, finishes or, where it can, removes what an earlier crash left (step_*.tmp, step_*.old)
/// and, if one of those that stay is sound, what need not stay; and makes an empty step_<step>.tmp in it.
/// options: say which of them stay.
void prepare_folder(const std::filesystem::path& folder, std::int64_t step, const SaveOptions& options);

/// Makes an empty step_<step>.tmp in a node's folder of snapshots, and removes all but the newest snapshot.
void begin_snapshot(const std::filesystem::path& folder, std::int64_t step);

/// Removes the step_<step>.tmp of a save that failed: half a checkpoint would only fill the disk. False where
/// somebody had removed it before.
bool remove_unfinished(const std::filesystem::path& folder, std::int64_t step);

/// Throws Error where the folder's file system has no room for so many bytes, as far as it says.
void require_room(const std::filesystem::path& unfinished, std::int64_t bytes);

/// Syncs step_<step>.tmp and gives it its final name. A checkpoint that has that name becomes
/// step_<step>.old, for retain() to remove. "" or why a loss of power may still take the name back: then
/// nothing else may be removed.
[[nodiscard]] std::string publish(const std::filesystem::path& folder, std::int64_t step);

/// Removes what interrupted saves and removals left (step_*.tmp), and what a checkpoint has replaced
/// (step_*.old), while no save is in progress. Never throws: gives a line for each thing that it could not
/// remove.
std::vector<std::string> remove_remains(const std::filesystem::path& folder);

/// Removes checkpoints that need not stay, never that of `step`. Removes step_*.tmp and
/// step_*.old too, while no save is in progress. Names that are not exactly step_<digits> are left alone.
/// Never throws: gives a line for each thing that it could not remove.
std::vector<std::string> retain(const std::filesystem::path& folder, std::int64_t step,
                                const SaveOptions& options);

}  // namespace ztrain::checkpoint
