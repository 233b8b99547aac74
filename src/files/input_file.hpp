#pragma once
// A file whose bytes are read where they are needed. It is not mapped: the system answers the access to a
// mapping that a shorter file no longer fills with a signal, instead of an error that names the file.

#include <cstdint>
#include <string>

namespace ztrain {

/// Owns the descriptor. Movable, not copyable.
class InputFile {
 public:
  /// Throws Error naming the file when it cannot be opened.
  explicit InputFile(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Bytes when it was opened.
  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Copies bytes [offset, offset + bytes) to out. Any thread. Throws Error naming the file when they cannot
  /// be read, or are there no longer.
  void read(std::int64_t offset, std::int64_t bytes, void* out) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

/// Throws the Error on a file that has become shorter while it was open.
[[noreturn]] void fail_shrunk(const std::string& path, std::int64_t had, std::int64_t end);

}  // namespace ztrain
