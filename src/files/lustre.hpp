#pragma once
// Uses what Lustre file systems offer beyond POSIX, by their program `lfs` in PATH: stripes of a folder's
// files, and quotas. Quotas of other file systems are the kernel's.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ztrain {

/// Returns whether the path lies on a Lustre file system, by its number in statfs(2).
bool is_lustre(const std::filesystem::path& path);

/// Gives a new, empty folder a progressive layout: the files in it take more storage targets as they grow.
/// Returns one line that tells the user what was done, or why nothing was. Returns "" if the folder is not
/// `on_lustre`. Never throws.
std::string spread_files_of(const std::filesystem::path& folder, bool on_lustre);

/// The room that the tightest quota of a user or a group leaves.
struct QuotaLeft {
  std::int64_t bytes = 0;
  std::string whose;  ///< "user 1000"
};
/// Returns the room that quotas leave this process there; nothing if no quota limits it or none is known.
/// Asks `lfs quota` on Lustre, and elsewhere the kernel, which knows the quotas of local file systems.
std::optional<QuotaLeft> quota_left(const std::filesystem::path& folder, bool on_lustre);

/// Throws Error if `what` ("a checkpoint") takes more bytes than a quota leaves. `otherwise` says what the
/// user can do besides making room.
void require_quota(const std::filesystem::path& folder, std::int64_t bytes,
                   const std::optional<QuotaLeft>& left, std::string_view what, std::string_view otherwise);

/// Returns the bytes that the hard limit in an answer of `lfs quota -q` leaves; nothing if it sets no limit
/// or is not understood.
std::optional<std::int64_t> left_of_lfs_quota(const std::string& text);

}  // namespace ztrain
