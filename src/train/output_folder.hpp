#pragma once
// Prepares the folders that a run writes to before it starts, and finds the files by which people ask for
// something there.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "files/posix_file.hpp"

namespace ztrain::train {

/// Names of files that a run keeps in its folders besides checkpoints and metrics.
constexpr const char *lock_name = ".lock", *probe_name = ".ztrain_write_test",
                     *resolved_deck_name = "deck.resolved.toml", *places_name = ".places",
                     *timeline_name = "timeline.json", *trace_folder_name = "trace";
/// Names of files that others make there: the run saves, or saves and ends.
constexpr const char *save_name = "save", *stop_name = "stop";

/// Creates a folder and proves that files can be written in it. Errors name `key`, which the user set. Throws
/// Error.
void make_writable(const std::filesystem::path& folder, const char* key);

/// Holds a folder, by a lock on a file in it, so that no other run writes there while this lives. If the file
/// system has no locks, every process gets the folder.
class HeldFolder {
 public:
  /// The folder must exist. Errors name `key`, which the user set. If another process holds the folder,
  /// throws Error with the host and process number that it left there.
  HeldFolder(std::filesystem::path folder, const char* key, std::string host);

  /// Makes and locks the folder again if somebody has removed it or its lock file. Returns false if nothing
  /// was missing. Throws Error if another process holds it by now, or if another disk is mounted there: a new
  /// folder would lie below the mount point of the old one, where nobody would look for it.
  bool hold_again();

 private:
  PosixFile lock() const;
  void require_same_disk() const;

  std::filesystem::path folder_;
  const char* key_;
  std::string host_;
  dev_t disk_;
  std::optional<PosixFile> lock_;
};

/// Says how long to wait for a folder that another run holds. `told` is called with the reason before each
/// second.
struct Patience {
  double seconds = 0;
  std::function<void(const std::string& why)> told;
};
HeldFolder hold(const std::filesystem::path& folder, const char* key, const std::string& host,
                const Patience& patience);

/// A file that somebody has made to ask the run for something, and that is removed by now.
struct FileRequest {
  std::string path, owner;  ///< owner: "bob (uid 1000)"
  int signal = 0;           ///< the signal that asks for the same
  std::string why_kept;     ///< why it could not be removed; else ""
};
/// Removes the files `save` and `stop` of a folder and returns them. Anything else of these names is left.
std::vector<FileRequest> take_requests(const std::filesystem::path& folder);

/// Writes a file with this content. Throws Error.
void write_text(const std::filesystem::path& path, const std::string& text, const char* key);

/// Moves checkpoints of later steps than `step` to a folder named after `folder` and `suffix`. They are
/// another run's, or the run went back from them; here they would pass for newer ones. Checkpoints of the
/// steps `left` stay. Returns the new folder's name, or "" if nothing was moved.
std::string move_aside(const std::filesystem::path& folder, std::int64_t step, const std::string& suffix,
                       const std::set<std::int64_t>& left = {});

}  // namespace ztrain::train
