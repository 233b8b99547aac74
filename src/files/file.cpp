#include "files/file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/shape.hpp"

namespace ztrain {
namespace {

constexpr std::size_t largest_call = std::size_t{1} << 30;  // Linux moves less than 2 GiB a call

constexpr std::size_t most_path = 1000;  ///< bytes of a path in a message; some are too long to be one

struct KindRow {
  mode_t kind;
  const char* text;
};
constexpr std::array kind_rows{KindRow{S_IFIFO, "a FIFO"}, KindRow{S_IFDIR, "a folder"},
                               KindRow{S_IFCHR, "a device"}, KindRow{S_IFBLK, "a device"},
                               KindRow{S_IFSOCK, "a socket"}};

/// What the path is instead of a regular file; "" where it is one, or where that is not known.
std::string other_kind(mode_t mode) {
  for (const KindRow& row : kind_rows)
    if ((mode & S_IFMT) == row.kind) return fmt::format("it is {}, and a regular file is needed", row.text);
  return "";
}

std::string other_kind(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? other_kind(status.st_mode) : "";
}

std::string before(std::string_view key) {
  return key.empty() ? "" : fmt::format("{}: ", key);
}

[[noreturn]] void cannot_open(const std::string& path, bool writes, std::string_view key,
                              const std::string& reason) {
  fail("{}cannot {} '{}': {}", before(key), writes ? "write" : "read", printable(path, most_path), reason);
}

/// Which limit of this process, or right of its user, an error comes from, and what to do; "" where it comes
/// from none.
std::string limit_behind(int error) {
  if (error == EACCES || error == EPERM)
    return fmt::format("it, and the folders above it, must be open to this user (number {})", ::geteuid());
  rlimit limit{};
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format("the limit on file sizes is {} bytes for this process: raise it (ulimit -f)",
                       limit.rlim_cur);
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    return fmt::format(
        "this process may have {} open: allow for more (ulimit -n), or join what it reads into fewer files",
        limit.rlim_cur);
  return "";
}

/// Of O_NOFOLLOW, a link that is there is no error but for who would write through it.
std::string why_not_open(int error, int flags) {
  if (error == ELOOP && (flags & O_NOFOLLOW) != 0)
    return "it is a symbolic link, which is not written through: remove it";
  return text_of_errno(error);
}

/// pread(2) or pwrite(2).
template <class Call, class Memory>
ssize_t move_some(Call call, int descriptor, Memory memory, std::int64_t bytes, std::int64_t offset) {
  ssize_t moved = 0;
  do moved = call(descriptor, memory, std::min(static_cast<std::size_t>(bytes), largest_call), offset);
  while (moved < 0 && errno == EINTR);
  return moved;
}

}  // namespace

std::string text_of_errno(int error, std::string_view otherwise) {
  std::string advice = limit_behind(error);
  if (advice.empty()) advice = otherwise;
  return advice.empty() ? std::strerror(error) : fmt::format("{}; {}", std::strerror(error), advice);
}

std::string text_of_size_limit(std::int64_t comes_to, std::int64_t limit) {
  constexpr std::int64_t unit = 1024;  // of ulimit
  return fmt::format(
      "it comes to {} bytes at most, and this process may write files of at most {}: raise that limit "
      "(`ulimit -f "
      "{}`)",
      comes_to, limit, ceil_div(comes_to, unit));
}

std::string text_of_failed_write(int error, std::int64_t comes_to, std::string_view elsewhere) {
  if (error == ENOSPC || error == EDQUOT)
    return text_of_errno(error, fmt::format("make room, or {}", elsewhere));
  if (error == EIO)
    return text_of_errno(
        error, fmt::format("the disk, or the way to it, fails: the system's log (dmesg) may say more; {}",
                           elsewhere));
  rlimit limit{};
  if (error != EFBIG || comes_to == 0) return text_of_errno(error);
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format("{}; {}", std::strerror(error),
                       text_of_size_limit(comes_to, static_cast<std::int64_t>(limit.rlim_cur)));
  return text_of_errno(error,
                       fmt::format("this file system takes no file of {} bytes: {}", comes_to, elsewhere));
}

void let_large_files_fail() {
  ::signal(SIGXFSZ, SIG_IGN);
}

int open_file(const std::string& path, int flags, std::string_view key) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (file < 0) {
    const int error = errno;
    const std::string kind = error == ENXIO || error == EISDIR ? other_kind(path) : "";
    cannot_open(path, writes, key, kind.empty() ? why_not_open(error, flags) : kind);
  }
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    // It was for opening alone: some file systems fail a read or a write that would have to wait. F_SETFL
    // passes over what only counts for open().
    if (::fcntl(file, F_SETFL, flags) != 0) cannot_open(path, writes, key, text_of_errno(errno));
    return file.release();
  }
  const std::string kind = other_kind(status.st_mode);
  cannot_open(path, writes, key, kind.empty() ? "it is no regular file" : kind);
}

int open_file_or_stream(const std::string& path, int flags, std::string_view key) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666);
  if (descriptor < 0) cannot_open(path, (flags & O_ACCMODE) != O_RDONLY, key, text_of_errno(errno));
  return descriptor;
}

std::int64_t read_some(int descriptor, void* to, std::int64_t bytes, std::int64_t offset) {
  return move_some(::pread, descriptor, to, bytes, offset);
}

std::int64_t write_some(int descriptor, const void* from, std::int64_t bytes, std::int64_t offset) {
  return move_some(::pwrite, descriptor, from, bytes, offset);
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;  // it would repeat for ever
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::string why_not_local(const std::string& path) {
  const std::size_t end = path.find("://");
  const auto names_one = [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '-'; };
  const bool address =
      end != std::string::npos && end > 0 && std::ranges::all_of(path.substr(0, end), names_one);
  return address ? fmt::format(
                       "'{}' is an address, and ztrain reads and writes files alone: copy it to a folder "
                       "here, or mount it as one, and give that path",
                       printable(path, most_quoted))
                 : "";
}

bool file_exists(const std::string& path, std::string_view key) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  cannot_open(path, false, key, text_of_errno(errno));
}

std::string unused_name(const std::string& stem, const std::string& ending) {
  std::string name = stem + ending;
  for (int n = 2; file_exists(name); ++n) name = fmt::format("{}-{}{}", stem, n, ending);
  return name;
}

void require_readable(const std::string& path, std::string_view key) {
  ::close(open_file(path, O_RDONLY, key));
}

std::string read_file(const std::string& path, std::int64_t most, std::string_view key) {
  const Descriptor file(open_file(path, O_RDONLY, key));
  struct stat status {};
  if (::fstat(file, &status) != 0) cannot_open(path, false, key, text_of_errno(errno));
  REQUIRE(status.st_size <= most, "{}'{}' has {} bytes, and no such file has more than {}", before(key),
          printable(path), status.st_size, most);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::int64_t done = 0;
  for (std::int64_t n = 1; done < std::ssize(text) && n > 0; done += n) {  // 0: it has become shorter
    n = read_some(file, text.data() + done, std::ssize(text) - done, done);
    if (n < 0) cannot_open(path, false, key, text_of_errno(errno));
  }
  text.resize(static_cast<std::size_t>(done));
  return text;
}

std::string read_file_or_stream(const std::string& path, std::int64_t most, std::string_view key) {
  const Descriptor file(open_file_or_stream(path, O_RDONLY, key));
  std::string text;
  std::array<char, 1 << 16> piece;
  while (true) {
    const ssize_t n = ::read(file, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot_open(path, false, key, text_of_errno(errno));
    if (n == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
    REQUIRE(std::ssize(text) <= most, "{}'{}' has more than {} bytes, and no such file has", before(key),
            printable(path), most);
  }
}

OutputFile OutputFile::create(const std::string& path, std::string_view key) {
  return {path, open_file(path, O_WRONLY | O_CREAT | O_TRUNC, key), key};
}

OutputFile OutputFile::create_or_stream(const std::string& path, std::string_view key) {
  return {path, open_file_or_stream(path, O_WRONLY | O_CREAT | O_TRUNC, key), key};
}

OutputFile OutputFile::append(const std::string& path, std::string_view key) {
  return {path, open_file(path, O_WRONLY | O_CREAT | O_APPEND, key), key};
}

void OutputFile::cannot_write() const {
  fail("{}cannot write '{}': {}", before(key_), printable(path_),
       text_of_failed_write(errno, 0, "name a file in a folder that can be written"));
}

void OutputFile::write(std::string_view bytes) {
  if (!write_all(descriptor_, bytes)) cannot_write();
}

void OutputFile::sync() {
  if (::fsync(descriptor_) != 0) cannot_write();
}

void OutputFile::close() {
  if (descriptor_.close() != 0 && errno != EINTR) cannot_write();
}

namespace {

/// Returns whether both exist, and the file is the other one or lies below it.
bool is_within(const std::string& file, const std::string& other) {
  std::error_code missing;
  const std::filesystem::path inner = std::filesystem::canonical(file, missing);
  const std::filesystem::path outer =
      missing ? std::filesystem::path() : std::filesystem::canonical(other, missing);
  return !missing && *inner.lexically_relative(outer).begin() != "..";
}

}  // namespace

OutputFile create_output(const std::string& path, const std::string& option,
                         const std::vector<std::string>& read) {
  for (const std::string& one : read)
    REQUIRE(!is_within(path, one),
            "{}: '{}' would be written over, and this command reads '{}': give another file", option,
            printable(path), printable(one));
  return OutputFile::create_or_stream(path, option);
}

}  // namespace ztrain
