#pragma once
// The folders that a run writes to, made ready before it starts.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "files/posix_file.hpp"

namespace ztrain::train {

/// What a run has in its folders beside checkpoints and metrics.
constexpr const char *lock_name = ".lock", *probe_name = ".ztrain_write_test",
                     *resolved_deck_name = "deck.resolved.toml", *places_name = ".places",
                     *timeline_name = "timeline.json";

/// Creates a folder and proves that files can be written in it. key: what the user set. Throws Error.
void make_writable(const std::filesystem::path& folder, const char* key);

/// A folder that no other run writes to while this lives, by a lock on a file in it. Where the file system
/// has no locks, every process gets it.
class HeldFolder {
 public:
  /// The folder must be there. key: what the user set. Throws Error when another process holds it, which
  /// names that by the host and the number that it left there.
  HeldFolder(std::filesystem::path folder, const char* key, std::string host);

  /// Makes and holds again what somebody has removed since: the folder, or the file whose lock is the hold.
  /// False: it is all there.
  /// Throws Error when another process has it by now, and when another disk stands there: where one was
  /// unmounted, a folder made anew would lie below its place, and nobody would look for it there.
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

/// How long a folder is waited for that another run holds, and who is told why, before each second.
struct Patience {
  double seconds = 0;
  std::function<void(const std::string& why)> told;
};
HeldFolder hold(const std::filesystem::path& folder, const char* key, const std::string& host,
                const Patience& patience);

/// A file of this content. Throws Error.
void write_text(const std::filesystem::path& path, const std::string& text, const char* key);

/// Checkpoints beyond a step from which a run goes on are another run's, or ones that it went back from:
/// among its own they would pass for newer ones. They are moved to a folder of their own, called after
/// `folder` with the suffix; its name, or "" when there were none. Those of the steps `left` stay.
std::string move_aside(const std::filesystem::path& folder, std::int64_t step, const std::string& suffix,
                       const std::set<std::int64_t>& left = {});

}  // namespace ztrain::train
