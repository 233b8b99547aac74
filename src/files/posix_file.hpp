#pragma once
// Files by offset, for bulk bytes. Every failure is an Error that names the file and what is missing.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace ztrain {

/// A file descriptor that is closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  operator int() const { return number_; }
  /// It is the caller's to close from here on.
  int release() { return std::exchange(number_, -1); }
  /// Returns what close(2) gives; some file systems report a failed write only here.
  int close() { return ::close(release()); }

 private:
  int number_;
};

/// What direct I/O is given multiples of, which suits all disks.
inline constexpr std::int64_t direct_page = 4096;

class PosixFile {
 public:
  /// A new empty file; one that exists is emptied. key: what the user set to have it there, for messages. A
  /// symbolic link in its place is refused: it would have a file written that nobody named.
  static PosixFile create(const std::filesystem::path& path, const char* key = checkpoint_key);
  /// The same, but one that exists stays as it is.
  static PosixFile open_or_create(const std::filesystem::path& path, const char* key);
  /// A file without a name whose bytes are in memory, only those pages that were written. `what` is for
  /// messages.
  static PosixFile create_in_memory(const std::filesystem::path& what);
  static PosixFile open_to_read(const std::filesystem::path& path);
  /// The file must exist.
  static PosixFile open_to_write(const std::filesystem::path& path, const char* key = checkpoint_key);
  /// The same file, for write_direct; that must be there. std::nullopt: this system does not say that it can
  /// be written so, with direct_page, or another file has its name by now.
  static std::optional<PosixFile> open_direct(const PosixFile& file);
  /// The same for read_direct.
  static std::optional<PosixFile> open_direct_to_read(const PosixFile& file);

  std::int64_t size() const;
  void read_at(void* data, std::int64_t bytes, std::int64_t offset) const;
  /// Whether most of it is in the page cache. False where the system does not say (Linux before 6.5).
  bool is_cached() const;
  /// Past the page cache, of a file of open_direct_to_read: address, bytes and offset are multiples of
  /// direct_page. How many bytes it read; fewer at the end of the file, and where the system gives no more in
  /// this way.
  std::int64_t read_direct(void* data, std::int64_t bytes, std::int64_t offset) const;
  /// Has the system begin to read these bytes while the caller works on others. A hint: failures do not
  /// matter.
  void read_ahead(std::int64_t bytes, std::int64_t offset) const;
  void write_at(const void* data, std::int64_t bytes, std::int64_t offset) const;
  /// Past the page cache, of a file of open_direct: address, bytes and offset are multiples of direct_page.
  /// How many bytes it wrote; where that is fewer, the system takes no more in this way.
  std::int64_t write_direct(const void* data, std::int64_t bytes, std::int64_t offset) const;
  /// Takes the room of a file of so many bytes, where the file system can do that; what it holds stays.
  void reserve(std::int64_t bytes) const;
  /// Has the system begin to bring these bytes to the disk, so that sync() has less to wait for. A hint.
  void begin_to_write(std::int64_t bytes, std::int64_t offset) const;
  /// Makes this (empty) file a copy of source: its size and its written bytes; the holes stay holes.
  void copy_sparse(const PosixFile& source) const;
  void sync() const;
  /// Makes the file this process's own until it is closed. False: another process has it. Where the file
  /// system has no locks, every process gets it.
  bool lock() const;
  /// False: it was removed, or another file stands in its place.
  bool has_its_name() const;
  /// Some file systems report a failed write only here, so a writer must call it.
  void close();
  const std::filesystem::path& path() const { return path_; }
  /// Lets another descriptor of this process mean this file from now on.
  void take_over(int descriptor) const;

 private:
  static constexpr const char* checkpoint_key = "checkpoint.folder";

  PosixFile(std::filesystem::path path, int descriptor, const char* key = checkpoint_key);
  static PosixFile open(const std::filesystem::path& path, int flags, const char* key = checkpoint_key);
  static std::optional<PosixFile> open_direct(const PosixFile& file, int flags);
  [[noreturn]] void cannot_write(int error, std::int64_t at, std::int64_t missing) const;
  std::filesystem::path path_;
  Descriptor descriptor_;
  const char* key_;
};

/// Throws Error unless this process may write files of so many bytes (ulimit -f), with the limit that would
/// do, and what else does (", or ...").
void require_file_size(const std::filesystem::path& path, std::int64_t bytes,
                       std::string_view otherwise = {});

/// Makes a file of these bytes, which are durable then; its name is with sync_folder. key: as of
/// PosixFile::create.
void write_file(const std::filesystem::path& path, std::string_view bytes, const char* key);

/// Makes the names in a folder (creations, renames) durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace ztrain
