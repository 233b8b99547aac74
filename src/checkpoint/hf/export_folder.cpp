#include "checkpoint/hf/export_folder.hpp"

#include <system_error>

#include "base/error.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* marker_name = ".ztrain_export";

}  // namespace

void require_new_folder(const fs::path& folder, const ExportKeys& keys) {
  std::error_code error;
  REQUIRE(!fs::exists(folder, error), "'{}' exists: give another folder with {}, or remove it",
          folder.string(), keys.folder);
  const fs::path unfinished = ExportFolder::unfinished_path(folder);
  REQUIRE(!fs::exists(unfinished, error) || fs::exists(unfinished / marker_name, error),
          "'{}' exists and is not of an interrupted export: remove it, or give another folder with {}",
          unfinished.string(), keys.folder);
}

fs::path ExportFolder::final_path(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

fs::path ExportFolder::unfinished_path(const fs::path& folder) {
  return final_path(folder).string() + ".tmp";
}

ExportFolder::ExportFolder(const fs::path& folder, std::int64_t bytes, const ExportKeys& keys)
    : target_(final_path(folder)), unfinished_(unfinished_path(folder)), keys_(keys) {
  require_new_folder(target_, keys);
  clear_remains();
  const fs::path parent = target_.parent_path();
  std::error_code error;
  fs::create_directories(parent, error);
  const fs::space_info space = fs::space(parent, error);
  REQUIRE(error || space.available >= static_cast<std::uintmax_t>(bytes),
          "'{}' has {} bytes left, and the weights take {}: make room, or give a folder elsewhere with {}",
          parent.string(), space.available, bytes, keys.folder);
  REQUIRE(!error && fs::create_directory(unfinished_, error), "cannot make the folder '{}': {}",
          unfinished_.string(), error.message());
  try {
    marker_.emplace(PosixFile::create(unfinished_ / marker_name, keys.folder));
  } catch (const Error&) {
    fs::remove(unfinished_, error);
    throw;
  }
  REQUIRE(marker_->lock(), "'{}': another export is under way there", unfinished_.string());
}

void ExportFolder::clear_remains() {
  std::error_code error;
  if (!fs::exists(unfinished_, error)) return;
  const PosixFile marker = PosixFile::open_to_write(unfinished_ / marker_name, keys_.folder);
  REQUIRE(marker.lock(), "'{}': another export is under way there: give another folder with {}",
          unfinished_.string(), keys_.folder);
  fs::remove_all(unfinished_, error);
  REQUIRE(!error, "'{}', of an interrupted export, cannot be removed: {}", unfinished_.string(),
          error.message());
  removed_remains_ = true;
}

void ExportFolder::publish() {
  std::error_code error;
  sync_folder(unfinished_);
  fs::rename(unfinished_, target_, error);
  REQUIRE(!error, "cannot rename '{}' to '{}': {}", unfinished_.string(), target_.string(), error.message());
  // The marker is removed last: without it the next export would not remove what this one leaves.
  fs::remove(target_ / marker_name, error);
  marker_.reset();
  sync_folder(target_.parent_path());
}

void ExportFolder::discard() {
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
  marker_.reset();
}

}  // namespace ztrain::checkpoint
