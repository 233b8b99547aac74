#include "checkpoint/neighbours/node_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <system_error>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char *folder_prefix = "ztrain-", *owner_name = "checkpoints", *lock_name = ".lock";
constexpr std::size_t token_digits = 32;
constexpr std::int64_t longest_path = 1 << 16;

std::string new_token() {
  std::random_device device;
  std::string token;
  while (token.size() < token_digits) token += fmt::format("{:08x}", device());
  return token;
}

bool is_token(std::string_view text) {
  return text.size() == token_digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string read_whole(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path, unknown) ? read_file(path.string(), longest_path) : "";
}

/// Returns whether nobody holds the folder and its run is over. A run that will go on in a moment has written
/// recently, however it ended.
bool is_dead(const fs::path& folder, fs::file_time_type written, const fs::path& checkpoints) {
  return read_whole(folder / owner_name) == checkpoints.string() ||
         fs::file_time_type::clock::now() - written > std::chrono::hours(1);
}

/// Returns the folders of all runs.
std::vector<fs::path> folders_in(const fs::path& memory) {
  std::vector<fs::path> found;
  std::error_code unknown;
  for (const auto& entry : fs::directory_iterator(memory, unknown)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(folder_prefix) &&
        is_token(std::string_view(name).substr(std::string_view(folder_prefix).size())))
      found.push_back(entry.path());
  }
  return found;
}

/// Removes a folder if its run is dead. Another user's folder may not be readable. Holds the folder until it
/// is removed, because its run may begin again now.
bool is_removed_if_dead(const fs::path& folder, const fs::path& checkpoints) {
  try {
    const auto written = fs::last_write_time(folder);
    const auto lock = PosixFile::open_or_create(folder / lock_name, memory_key);
    if (!lock.lock() || !lock.has_its_name()) return false;
    return is_dead(folder, written, checkpoints) && fs::remove_all(folder) > 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string snapshot_token(const fs::path& checkpoints, bool anew) {
  const fs::path file = checkpoints / snapshot_token_name;
  std::string token = read_whole(file);
  if (!anew && is_token(token)) return token;
  token = new_token();
  write_file(file, token, "checkpoint.folder");
  sync_folder(checkpoints);
  return token;
}

fs::path node_folder(const fs::path& memory, const std::string& token) {
  return fs::absolute(memory) / (folder_prefix + token);
}

void make_node_folder(const fs::path& folder) {
  REQUIRE(fs::is_directory(folder.parent_path()),
          "{}: '{}' is no folder of this node: name one of its memory that is there, such as /dev/shm",
          memory_key, folder.parent_path().string());
  std::error_code error;
  fs::create_directory(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  REQUIRE(!error, "{}: '{}' cannot be made: {}", memory_key, folder.string(), error.message());
}

void name_owner(const fs::path& folder, const fs::path& checkpoints) {
  write_file(folder / owner_name, checkpoints.string(), memory_key);
}

bool belongs_to_another(const fs::path& folder, const fs::path& checkpoints) {
  const std::string owner = read_whole(folder / owner_name);
  std::error_code unknown;
  return !owner.empty() && !fs::equivalent(owner, checkpoints, unknown) &&
         folder.filename() == folder_prefix + read_whole(fs::path(owner) / snapshot_token_name);
}

int remove_leftovers(const fs::path& folder, const fs::path& checkpoints) {
  const auto all = folders_in(folder.parent_path());
  return static_cast<int>(std::ranges::count_if(
      all, [&](const fs::path& other) { return other != folder && is_removed_if_dead(other, checkpoints); }));
}

std::vector<HeldSnapshot> snapshots_in(const fs::path& folder) {
  std::vector<HeldSnapshot> found;
  for (const fs::path& path : list(folder)) {
    const std::string metadata = path / config::checkpoint_metadata_file;
    HeldSnapshot held{.path = path, .step = step_of(path), .seal = "", .shards = {}, .fault = ""};
    held.fault = failure_of([&] {
      if (!file_exists(metadata)) return;
      for (const auto& entry : fs::directory_iterator(path))
        if (const std::string name = entry.path().filename().string(); name.starts_with("shard_"))
          held.shards.push_back({name, static_cast<std::int64_t>(entry.file_size())});
      std::ranges::sort(held.shards, {}, &FileEntry::name);
      held.seal = hex(hash_text(read_file(metadata, config::largest_metadata)));
    });
    if (!held.seal.empty() || !held.fault.empty()) found.push_back(std::move(held));
  }
  return found;
}

std::int64_t bytes_in(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code unknown;
  for (const auto& entry : fs::recursive_directory_iterator(folder, unknown))
    if (entry.is_regular_file(unknown)) bytes += static_cast<std::int64_t>(entry.file_size(unknown));
  return bytes;
}

std::int64_t bytes_of_run(const fs::path& memory, const fs::path& checkpoints) {
  std::int64_t bytes = 0;
  for (const fs::path& folder : folders_in(fs::absolute(memory)))
    if (std::error_code unknown; fs::file_size(folder / owner_name, unknown) == checkpoints.string().size())
      if (read_whole(folder / owner_name) == checkpoints.string()) bytes += bytes_in(folder);
  return bytes;
}

void remove_snapshots(const fs::path& folder) {
  std::error_code unknown;
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(folder, unknown))
    if (entry.is_directory(unknown)) all.push_back(entry.path());
  for (const fs::path& path : all) fs::remove_all(path, unknown);
}

void require_room_in_memory(const fs::path& folder, std::int64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.capacity == 0) return;
  REQUIRE(
      static_cast<std::uintmax_t>(bytes) <= space.available,
      "{}: snapshots take {} of this node and '{}' has room for {}: give it more (mount -o remount,size=), "
      "name another folder, or set checkpoint.memory_copies = 0",
      memory_key, format_bytes(static_cast<double>(bytes)), folder.parent_path().string(),
      format_bytes(static_cast<double>(space.available)));
}

}  // namespace ztrain::checkpoint
