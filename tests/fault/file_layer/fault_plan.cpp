#include "tests/fault/file_layer/fault_plan.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace faulty {
namespace {

enum class Kind { eio, full, part, kill };

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Calls of this library's own go to the system at once.
struct Plan {
  std::string folder = variable("FAULTY_FOLDER"), shadow = variable("FAULTY_SHADOW");
  std::string own_rank = rank();
  // On another rank nothing happens.
  long at = variable("FAULTY_RANK") == own_rank ? std::atol(variable("FAULTY_AT").c_str()) : 0;
  Kind kind = kind_of(variable("FAULTY_KIND"));
  int journal = static_cast<int>(syscall(SYS_openat, AT_FDCWD, variable("FAULTY_JOURNAL").c_str(),
                                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  std::atomic<long> calls = 0;

  /// 0 also of a process that no launcher has started.
  static std::string rank() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
      if (const std::string given = variable(name); !given.empty()) return given;
    return "0";
  }
  static Kind kind_of(const std::string& name) {
    return name == "full"    ? Kind::full
           : name == "short" ? Kind::part
           : name == "kill"  ? Kind::kill
                             : Kind::eio;
  }
  bool counts(const std::string& path) const {
    if (path.starts_with("/memfd:ztrain")) return true;
    return !folder.empty() && path.starts_with(folder) &&
           (path.size() == folder.size() || path[folder.size()] == '/');
  }
};

Plan& plan() {
  static Plan one;
  return one;
}

std::string link_of(const std::string& link) {
  std::array<char, PATH_MAX> text{};
  const long n = syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), text.data(), text.size());
  return n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : "";
}

struct stat status_of(int file) {
  struct stat status {};
  syscall(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH);
  return status;
}

/// A file as it is now.
void copy(int file, const std::string& to) {
  const int copy =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
  const int from = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, ("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY));
  std::array<char, 1 << 16> bytes{};
  for (long n = 0; (n = syscall(SYS_read, from, bytes.data(), bytes.size())) > 0;)
    syscall(SYS_write, copy, bytes.data(), n);
  syscall(SYS_close, from);
  syscall(SYS_close, copy);
}

}  // namespace

std::string path_of(int file) {
  const int kept = errno;
  std::string path = link_of("/proc/self/fd/" + std::to_string(file));
  errno = kept;
  return path;
}

std::string path_at(int folder, const char* name) {
  if (name[0] == '/') return name;
  const int kept = errno;
  const std::string base =
      folder == AT_FDCWD ? link_of("/proc/self/cwd") : link_of("/proc/self/fd/" + std::to_string(folder));
  errno = kept;
  return base + "/" + name;
}

Call::Call(const char* name, std::string path, std::string to)
    : name_(name), path_(std::move(path)), to_(std::move(to)) {
  Plan& p = plan();
  if (p.counts(path_)) number_ = ++p.calls;
}

void Call::note(const std::string& what) const {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::string line = std::to_string(time.tv_sec * 1000000000L + time.tv_nsec) + "\t" + plan().own_rank +
                           "\t" + std::to_string(number_) + "\t" + name_ + "\t" + path_ + "\t" + what + "\n";
  syscall(SYS_write, plan().journal, line.data(), line.size());
}

bool Call::fails(Room room) {
  const Plan& p = plan();
  if (number_ == 0 || p.at == 0) return false;
  const bool lacks_room = p.kind == Kind::full && room == takes_room && number_ >= p.at;
  if (!lacks_room && !(p.kind == Kind::eio && number_ == p.at)) return false;
  note(lacks_room ? "failed: no room" : "failed");
  errno = lacks_room ? ENOSPC : EIO;
  return true;
}

std::size_t Call::shortened(std::size_t bytes) const {
  const Plan& p = plan();
  return p.kind == Kind::part && number_ != 0 && number_ == p.at && bytes > 1 ? bytes / 2 : bytes;
}

long Call::end(long result) const {
  const Plan& p = plan();
  if (p.kind == Kind::kill && number_ == p.at && number_ != 0) {
    note("killed");
    syscall(SYS_kill, getpid(), SIGKILL);
  }
  return result;
}

long Call::done(long result) {
  if (number_ == 0) return result;
  const int kept = errno;
  note("done");
  errno = kept;
  return end(result);
}

long Call::changed(int file, long result) {
  if (number_ == 0) return result;
  const int kept = errno;
  note("changed " + std::to_string(status_of(file).st_ino));
  errno = kept;
  return end(result);
}

int Call::synced(int file, int result) {
  if (number_ == 0) return result;
  const int kept = errno;
  const struct stat status = status_of(file);
  if (S_ISREG(status.st_mode)) copy(file, plan().shadow + "/synced." + std::to_string(status.st_ino));
  note((S_ISREG(status.st_mode) ? "synced " : "names synced ") + std::to_string(status.st_ino));
  errno = kept;
  return static_cast<int>(end(result));
}

int Call::named(int result) {
  if (number_ == 0) return result;
  const int kept = errno;
  note(result != 0 ? "done" : "named " + to_);
  errno = kept;
  return static_cast<int>(end(result));
}

int Call::opened(int file, int flags, bool was_there) {
  if (number_ == 0) return file;
  const int kept = errno;
  const bool made = file >= 0 && (flags & O_CREAT) != 0 && !was_there;
  const std::string inode = std::to_string(file < 0 ? 0 : status_of(file).st_ino);
  if (made) {
    // Of a file that had this number and is gone.
    syscall(SYS_unlinkat, AT_FDCWD, (plan().shadow + "/synced." + inode).c_str(), 0);
    note("named " + inode);
  } else {
    note(file >= 0 && (flags & O_TRUNC) != 0 ? "changed " + inode : "done");
  }
  errno = kept;
  return static_cast<int>(end(file));
}

void Call::keep_removed() {
  if (number_ == 0) return;
  const int kept = errno;
  to_ = plan().shadow + "/removed." + std::to_string(getpid()) + "." + std::to_string(number_);
  syscall(SYS_linkat, AT_FDCWD, path_.c_str(), AT_FDCWD, to_.c_str(), 0);
  errno = kept;
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  Call call("open", path_at(folder, name));
  if (call.fails((flags & O_CREAT) != 0 ? Call::takes_room : Call::takes_none)) return -1;
  const int kept = errno;
  const bool was_there = syscall(SYS_faccessat, folder, name, F_OK) == 0;
  errno = kept;
  return call.opened(static_cast<int>(syscall(SYS_openat, folder, name, flags, mode)), flags, was_there);
}

}  // namespace faulty
