#pragma once
// A file in the address space, read-only: the system pages in what is touched.

#include <cstddef>
#include <string>

namespace ztrain::data {

/// Owns the mapping. Movable, not copyable.
class MappedFile {
 public:
  /// Throws Error naming the file when it cannot be opened or mapped. An empty file maps to no bytes.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* bytes() const { return bytes_; }
  std::size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ztrain::data
