#pragma once
// A file whose bytes are read where they are needed. It is not mapped: the system answers the access to a
// mapping that a shorter file no longer fills with a signal, instead of an error that names the file.

#include <cstdint>
#include <string>

#include "files/posix_file.hpp"

namespace ztrain {

/// What tells whether a file is still as it was opened.
struct FileState {
  std::int64_t bytes = -1;      ///< -1: not known
  std::int64_t changed_at = 0;  ///< last written to, in nanoseconds of the file system's clock
  bool operator==(const FileState&) const = default;
};
FileState state_of(int descriptor);

/// Throws Error naming the file where it is not as it was.
void require_unchanged(const std::string& path, const FileState& was, const FileState& is);

class InputFile {
 public:
  /// Throws Error naming the file when it cannot be opened.
  explicit InputFile(const std::string& path);

  /// Bytes when it was opened.
  std::int64_t size() const { return state_.bytes; }
  const std::string& path() const { return path_; }
  /// Copies bytes [offset, offset + bytes) to out. Any thread. Throws Error naming the file when they cannot
  /// be read, or are not those of the file as it was opened.
  void read(std::int64_t offset, std::int64_t bytes, void* out) const;
  /// Asks the system for bytes that are read soon, and returns at once. A hint: nothing is said of failures.
  void read_ahead(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::string path_;
  Descriptor descriptor_;
  FileState state_;
};

}  // namespace ztrain
