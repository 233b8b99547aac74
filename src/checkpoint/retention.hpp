#pragma once
// The folder of checkpoints: names, publication and retention. One process at a time writes to it (rank 0);
// everything here can be interrupted at any point and leaves each checkpoint either whole under a name that
// list() knows, or under a .tmp name.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace ztrain::checkpoint {

/// folder/step_<step>.tmp
std::filesystem::path unfinished_path(const std::filesystem::path& folder, std::int64_t step);

/// Which complete checkpoints stay: the newest `keep` (0: all), those of steps that keep_every divides (0:
/// none), the keep_best of the lowest validation losses, as their metadata say them, and that of proven_step
/// wherever it stands.
struct Retention {
  int keep = 0;
  std::int64_t keep_every = 0;
  int keep_best = 0;
  std::int64_t proven_step = -1;
  std::set<std::int64_t> damaged = {};  ///< steps of those that are left as they are, and that do not count
};

/// Makes the folder, finishes or, where it can, removes what an earlier crash left (step_*.tmp, step_*.old)
/// and, if one of those that stay is sound, what need not stay; and makes an empty step_<step>.tmp in it.
void prepare_folder(const std::filesystem::path& folder, std::int64_t step, const Retention& stays);

/// Removes the step_<step>.tmp of a save that failed: half a checkpoint would only fill the disk. False where
/// somebody had removed it before.
bool remove_unfinished(const std::filesystem::path& folder, std::int64_t step);

/// Throws Error where the folder's file system has no room for so many bytes, as far as it says.
void require_room(const std::filesystem::path& unfinished, std::int64_t bytes);

/// Syncs step_<step>.tmp and gives it its final name. A checkpoint that has that name becomes
/// step_<step>.old, for retain() to remove.
void publish(const std::filesystem::path& folder, std::int64_t step);

/// Removes checkpoints that need not stay, never that of `step`. Removes step_*.tmp and
/// step_*.old too, while no save is in progress. Names that are not exactly step_<digits> are left alone.
/// Never throws: gives a line for each thing that it could not remove.
std::vector<std::string> retain(const std::filesystem::path& folder, std::int64_t step,
                                const Retention& stays);

}  // namespace ztrain::checkpoint
