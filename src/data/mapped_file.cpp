#include "data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ztrain::data {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0, "cannot open '{}': {}", path, std::strerror(errno));
  struct stat status {};
  void* mapping = MAP_FAILED;
  bool ok = ::fstat(descriptor, &status) == 0;
  if (ok && status.st_size > 0) {
    mapping = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
    ok = mapping != MAP_FAILED;
  }
  const int error = errno;
  ::close(descriptor);
  REQUIRE(ok, "cannot map '{}': {}", path, std::strerror(error));
  if (mapping == MAP_FAILED) return;
  bytes_ = static_cast<const std::byte*>(mapping);
  size_ = static_cast<std::size_t>(status.st_size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) ::munmap(const_cast<std::byte*>(bytes_), size_);
}

}  // namespace ztrain::data
