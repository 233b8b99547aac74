#include "files/posix_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "files/file.hpp"

namespace ztrain {
namespace {

std::string reason() {
  return text_of_errno(errno);
}

/// Systems that do not know the question say nothing, and neither do file systems without direct I/O.
bool moves_pages_directly(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0) return false;
  const auto divides = [](std::int64_t alignment) { return alignment > 0 && direct_page % alignment == 0; };
  return divides(status.stx_dio_mem_align) && divides(status.stx_dio_offset_align);
#else
  static_cast<void>(descriptor);
  return false;
#endif
}

/// False also where that cannot be known.
bool same_file(int a, int b) {
  struct stat of_a {
  }, of_b{};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino &&
         of_a.st_dev == of_b.st_dev;
}

}  // namespace

PosixFile::PosixFile(std::filesystem::path path, int descriptor, const char* key)
    : path_(std::move(path)), descriptor_(descriptor), key_(key) {
  REQUIRE(descriptor_ >= 0, "{}: cannot open: {}", path_.string(), reason());
}

PosixFile PosixFile::open(const std::filesystem::path& path, int flags, const char* key) {
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  return PosixFile(path, open_file(path, flags, reads ? "" : key), key);
}

PosixFile PosixFile::create(const std::filesystem::path& path, const char* key) {
  return open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, key);
}
PosixFile PosixFile::open_or_create(const std::filesystem::path& path, const char* key) {
  return open(path, O_RDWR | O_CREAT | O_NOFOLLOW, key);
}
PosixFile PosixFile::open_to_read(const std::filesystem::path& path) {
  return open(path, O_RDONLY);
}
PosixFile PosixFile::open_to_write(const std::filesystem::path& path, const char* key) {
  return open(path, O_WRONLY, key);
}

std::optional<PosixFile> PosixFile::open_direct(const PosixFile& file, int flags) {
  if (!moves_pages_directly(file.descriptor_)) return std::nullopt;
  try {
    PosixFile direct = open(file.path_, flags | O_DIRECT, file.key_);
    if (same_file(file.descriptor_, direct.descriptor_)) return direct;
  } catch (const Error&) {
    // It is written, or read, through the page cache, and what fails there is told.
  }
  return std::nullopt;
}

std::optional<PosixFile> PosixFile::open_direct(const PosixFile& file) {
  return open_direct(file, O_WRONLY | O_NOFOLLOW);
}
std::optional<PosixFile> PosixFile::open_direct_to_read(const PosixFile& file) {
  return open_direct(file, O_RDONLY);
}

PosixFile PosixFile::create_in_memory(const std::filesystem::path& what) {
  return PosixFile(what, ::memfd_create("ztrain", MFD_CLOEXEC));
}

void PosixFile::take_over(int descriptor) const {
  REQUIRE(::dup2(descriptor_, descriptor) >= 0, "{}: cannot be written in memory: {}", path_.string(),
          reason());
}

std::int64_t PosixFile::size() const {
  struct stat status {};
  REQUIRE(::fstat(descriptor_, &status) == 0, "{}: cannot read the size: {}", path_.string(), reason());
  return status.st_size;
}

void PosixFile::read_at(void* data, std::int64_t bytes, std::int64_t offset) const {
  auto* to = static_cast<std::byte*>(data);
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t n = read_some(descriptor_, to + done, bytes - done, offset + done);
    REQUIRE(n >= 0, "{}: cannot read at byte {}: {}", path_.string(), offset + done, reason());
    REQUIRE(n > 0, "{}: ends at byte {}, {} bytes are missing", path_.string(), offset + done, bytes - done);
    done += n;
  }
}

bool PosixFile::is_cached() const {
  constexpr long cachestat = 451;  // which the C library has no function for
  const struct { std::uint64_t offset, bytes; } whole{0, static_cast<std::uint64_t>(size())};
  struct {
    std::uint64_t cached, dirty, written, evicted, recently_evicted;
  } pages{};
  return ::syscall(cachestat, static_cast<int>(descriptor_), &whole, &pages, 0) == 0 &&
         2 * pages.cached * direct_page > whole.bytes;
}

std::int64_t PosixFile::read_direct(void* data, std::int64_t bytes, std::int64_t offset) const {
  return std::max<std::int64_t>(0, read_some(descriptor_, data, bytes, offset));
}

void PosixFile::read_ahead(std::int64_t bytes, std::int64_t offset) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

void PosixFile::write_at(const void* data, std::int64_t bytes, std::int64_t offset) const {
  const auto* from = static_cast<const std::byte*>(data);
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t n = write_some(descriptor_, from + done, bytes - done, offset + done);
    // A write that moves nothing and gives no reason would repeat for ever.
    if (n == 0) errno = EIO;
    if (n <= 0) cannot_write(errno, offset + done, bytes - done);
    done += n;
  }
}

std::int64_t PosixFile::write_direct(const void* data, std::int64_t bytes, std::int64_t offset) const {
  const std::int64_t n = write_some(descriptor_, data, bytes, offset);
  // What else there is, such as a full disk, the write through the page cache meets again and tells.
  if (n < 0 && errno != EIO) return 0;
  if (n < 0) cannot_write(errno, offset, bytes);
  return n;
}

void PosixFile::cannot_write(int error, std::int64_t at, std::int64_t missing) const {
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const std::int64_t comes_to = std::max<std::int64_t>(at + missing, known ? status.st_size : 0);
  fail("{}: cannot write at byte {}: {}", path_.string(), at,
       text_of_failed_write(error, comes_to, fmt::format("set {} to another file system", key_)));
}

void PosixFile::reserve(std::int64_t bytes) const {
  if (bytes == 0 || ::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, bytes) == 0) return;
  REQUIRE(errno != ENOSPC && errno != EDQUOT && errno != EIO, "{}: cannot take {} bytes: {}", path_.string(),
          bytes, text_of_failed_write(errno, bytes, fmt::format("set {} to another file system", key_)));
}

void PosixFile::begin_to_write(std::int64_t bytes, std::int64_t offset) const {
  ::sync_file_range(descriptor_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void PosixFile::copy_sparse(const PosixFile& source) const {
  const std::int64_t bytes = source.size();
  REQUIRE(::ftruncate(descriptor_, bytes) == 0, "{}: cannot become {} bytes long: {}", path_.string(), bytes,
          text_of_failed_write(errno, bytes, fmt::format("set {} to another file system", key_)));
  std::vector<std::byte> buffer(1 << 20);
  for (off_t at = 0; at < bytes;) {
    const off_t begin = ::lseek(source.descriptor_, at, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) return;  // a hole up to the end
    const off_t end = begin < 0 ? begin : ::lseek(source.descriptor_, begin, SEEK_HOLE);
    REQUIRE(end > begin, "{}: cannot find its written parts: {}", source.path_.string(), reason());
    for (at = begin; at < end;) {
      const auto n = std::min<std::int64_t>(end - at, std::ssize(buffer));
      source.read_at(buffer.data(), n, at);
      write_at(buffer.data(), n, at);
      at += n;
    }
  }
}

void PosixFile::sync() const {
  REQUIRE(::fsync(descriptor_) == 0, "{}: cannot make the bytes durable: {}", path_.string(), reason());
}

bool PosixFile::has_its_name() const {
  struct stat named {
  }, own{};
  if (::stat(path_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return ::fstat(descriptor_, &own) != 0 || (named.st_ino == own.st_ino && named.st_dev == own.st_dev);
}

bool PosixFile::lock() const {
  return ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void PosixFile::close() {
  const int status = descriptor_.close();
  REQUIRE(status == 0 || errno == EINTR, "{}: cannot close: {}", path_.string(), reason());
}

void require_file_size(const std::filesystem::path& path, std::int64_t bytes, std::string_view otherwise) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  REQUIRE(static_cast<rlim_t>(bytes) <= limit.rlim_cur, "{}: {}{}", path.string(),
          text_of_size_limit(bytes, static_cast<std::int64_t>(limit.rlim_cur)), otherwise);
}

void write_file(const std::filesystem::path& path, std::string_view bytes, const char* key) {
  PosixFile file = PosixFile::create(path, key);
  file.write_at(bytes.data(), std::ssize(bytes), 0);
  file.sync();
  file.close();
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(opened >= 0, "{}: cannot open the folder: {}", folder.string(), reason());
  // File systems that keep no journal of names answer EINVAL.
  REQUIRE(::fsync(opened) == 0 || errno == EINVAL, "{}: cannot make the folder durable: {}", folder.string(),
          reason());
}

}  // namespace ztrain
