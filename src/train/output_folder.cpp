#include "train/output_folder.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "files/file.hpp"

namespace ztrain::train {
namespace {

/// Returns the device number of the path, or of its nearest parent that exists.
dev_t disk_of(const std::filesystem::path& path) {
  struct stat status {};
  std::filesystem::path there = std::filesystem::absolute(path);
  while (::stat(there.c_str(), &status) != 0 && there.has_relative_path()) there = there.parent_path();
  return status.st_dev;
}

std::string name_of_user(uid_t user) {
  std::array<char, 4096> texts{};
  struct passwd entry {};
  struct passwd* found = nullptr;
  if (::getpwuid_r(user, &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr)
    return fmt::format("uid {}", user);
  return fmt::format("{} (uid {})", found->pw_name, user);
}

}  // namespace

void make_writable(const std::filesystem::path& folder, const char* key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  REQUIRE(!error, "{}: cannot create the folder '{}': {}", key, folder.string(),
          error == std::errc::file_exists && std::filesystem::is_symlink(folder)
              ? "it is a symbolic link to what is no folder"
              : error.message());
  const std::filesystem::path probe = folder / probe_name;
  try {
    write_text(probe, "ztrain\n", key);
  } catch (const Error&) {
    std::filesystem::remove(probe, error);  // A full disk takes the name, and not the text.
    throw;
  }
  std::filesystem::remove(probe, error);
}

void write_text(const std::filesystem::path& path, const std::string& text, const char* key) {
  auto file = PosixFile::create(path, key);
  file.write_at(text.data(), std::ssize(text), 0);
  file.close();
}

HeldFolder::HeldFolder(std::filesystem::path folder, const char* key, std::string host)
    : folder_(std::move(folder)), key_(key), host_(std::move(host)), disk_(disk_of(folder_)), lock_(lock()) {}

void HeldFolder::require_same_disk() const {
  REQUIRE(disk_of(folder_) == disk_,
          "{}: '{}' was on another disk when the run began, which is not there any more: mount it again, and "
          "the same command goes on from its newest checkpoint",
          key_, folder_.string());
}

PosixFile HeldFolder::lock() const {
  constexpr std::int64_t longest = 256;
  auto file = PosixFile::open_or_create(folder_ / lock_name, key_);
  if (!file.lock()) {
    std::string other(static_cast<std::size_t>(std::min(file.size(), longest)), ' ');
    file.read_at(other.data(), std::ssize(other), 0);
    fail("{}: another run is writing to '{}' ({}): wait for its end, or give this one another folder", key_,
         folder_.string(), other.substr(0, other.find('\n')));
  }
  REQUIRE(file.has_its_name(), "{}: '{}' was removed while this run began to hold it", key_,
          folder_.string());
  const std::string self = fmt::format("process {} on {}\n", ::getpid(), host_);
  file.write_at(self.data(), std::ssize(self), 0);
  return file;
}

bool HeldFolder::hold_again() {
  if (lock_ && lock_->has_its_name()) return false;
  require_same_disk();
  lock_.reset();
  lock_.emplace(in_folder(folder_, [this] { return lock(); }));
  return true;
}

HeldFolder hold(const std::filesystem::path& folder, const char* key, const std::string& host,
                const Patience& patience) {
  for (const double end = now() + patience.seconds;;) {
    try {
      return {folder, key, host};
    } catch (const Error& error) {
      if (now() >= end) throw;
      patience.told(error.what());
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

std::vector<FileRequest> take_requests(const std::filesystem::path& folder) {
  std::vector<FileRequest> taken;
  for (const auto& [name, signal] : {std::pair{save_name, SIGUSR2}, {stop_name, SIGUSR1}}) {
    const std::filesystem::path path = folder / name;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const int error = ::unlink(path.c_str()) == 0 ? 0 : errno;
    if (error == ENOENT) continue;  // Its maker has removed the file.
    taken.push_back(
        {path.string(), name_of_user(status.st_uid), signal, error == 0 ? "" : text_of_errno(error)});
  }
  return taken;
}

std::string move_aside(const std::filesystem::path& folder, std::int64_t step, const std::string& suffix,
                       const std::set<std::int64_t>& left) {
  std::filesystem::path aside;
  for (const auto& path : checkpoint::list(folder)) {
    if (checkpoint::step_of(path) <= step || left.contains(checkpoint::step_of(path))) continue;
    std::error_code error;
    if (aside.empty()) {
      aside = unused_name(folder.string() + suffix);
      std::filesystem::create_directories(aside, error);
    }
    if (!error) std::filesystem::rename(path, aside / path.filename(), error);
    REQUIRE(!error, "checkpoint.folder: '{}' is not of this run and cannot be moved to '{}': {}",
            path.string(), aside.string(), error.message());
  }
  return aside.string();
}

}  // namespace ztrain::train
