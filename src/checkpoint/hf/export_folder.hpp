#pragma once
// The folder that an export makes: <folder>.tmp with a marker in it, until publish() gives it its name. One
// process (rank 0) makes it.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/hf/export.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

class ExportFolder {
 public:
  /// Removes what an interrupted export left. Throws Error when the folder exists or another process is
  /// exporting there, and when there is no room for `bytes`.
  ExportFolder(const std::filesystem::path& folder, std::int64_t bytes, const ExportKeys& keys);

  /// Folders as they are called until, and from, publish() on.
  static std::filesystem::path final_path(const std::filesystem::path& folder);
  static std::filesystem::path unfinished_path(const std::filesystem::path& folder);

  bool removed_remains() const { return removed_remains_; }
  void write_text(const SideFile& file) const {
    write_file(unfinished_ / file.name, file.text, keys_.folder);
  }
  /// Syncs and renames.
  void publish();
  /// Removes everything. Never throws.
  void discard();

 private:
  void clear_remains();

  std::filesystem::path target_, unfinished_;
  ExportKeys keys_;
  std::optional<PosixFile> marker_;  ///< held locked
  bool removed_remains_ = false;
};

}  // namespace ztrain::checkpoint
