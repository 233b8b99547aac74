#pragma once
// The folder of checkpoints: names, publication and retention. One process at a time (rank 0) writes to it.
// Everything here can be interrupted at any point, and leaves each checkpoint either whole under a name that
// list() knows, or under a .tmp name.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

/// Returns folder/step_<step>.tmp.
std::filesystem::path unfinished_path(const std::filesystem::path& folder, std::int64_t step);

/// Makes the folder. Finishes or, if it can, removes what an earlier crash left (step_*.tmp, step_*.old). If
/// one of the checkpoints that stay is sound, removes those that need not stay. Then makes an empty
/// step_<step>.tmp. options say which checkpoints stay.
void prepare_folder(const std::filesystem::path& folder, std::int64_t step, const SaveOptions& options);

/// Makes an empty step_<step>.tmp in a node's folder of snapshots. Keeps the newest snapshot, and removes
/// everything else.
void begin_snapshot(const std::filesystem::path& folder, std::int64_t step);

/// Removes the step_<step>.tmp of a save that failed, which would only fill the disk. Returns false if
/// somebody had removed it before.
bool remove_unfinished(const std::filesystem::path& folder, std::int64_t step);

/// Throws Error if the folder's file system, or a quota there, has no room for this many bytes.
void require_room(const std::filesystem::path& unfinished, std::int64_t bytes);

/// Syncs step_<step>.tmp and gives it its final name. A checkpoint with that name becomes step_<step>.old,
/// for retain() to remove. Returns "", or why a loss of power may still take the name back; then nothing else
/// may be removed.
[[nodiscard]] std::string publish(const std::filesystem::path& folder, std::int64_t step);

/// Removes, while no save is in progress, what interrupted saves and removals left (step_*.tmp), and what a
/// checkpoint has replaced (step_*.old). Never throws: returns a line for each thing that it could not
/// remove.
std::vector<std::string> remove_remains(const std::filesystem::path& folder);

/// Removes, while no save is in progress, checkpoints that need not stay, except that of `step`, and also
/// step_*.tmp and step_*.old. Leaves names alone that are not exactly step_<digits>. Never throws: returns a
/// line for each thing that it could not remove.
std::vector<std::string> retain(const std::filesystem::path& folder, std::int64_t step,
                                const SaveOptions& options);

}  // namespace ztrain::checkpoint
