#pragma once
// Makes the folder of an export: <folder>.tmp with a marker in it, until publish() gives it its name. One
// process (rank 0) makes it.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/hf/export.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

class ExportFolder {
 public:
  /// Removes what an interrupted export left. Throws Error if the folder exists or another process is
  /// exporting there, and if there is no room for `bytes`.
  ExportFolder(const std::filesystem::path& folder, std::int64_t bytes, const ExportKeys& keys);

  /// Return the folder's names from publish() on, and until then.
  static std::filesystem::path final_path(const std::filesystem::path& folder);
  static std::filesystem::path unfinished_path(const std::filesystem::path& folder);

  bool removed_remains() const { return removed_remains_; }
  void write_text(const SideFile& file) const {
    write_file(unfinished_ / file.name, file.text, keys_.folder);
  }
  /// Syncs the folder and gives it its name.
  void publish();
  /// Removes everything. Never throws.
  void discard();

 private:
  void clear_remains();

  std::filesystem::path target_, unfinished_;
  ExportKeys keys_;
  std::optional<PosixFile> marker_;  ///< locked while it is held
  bool removed_remains_ = false;
};

}  // namespace ztrain::checkpoint
