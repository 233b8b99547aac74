#include "files/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>

#include "base/error.hpp"
#include "files/file.hpp"

namespace ztrain {

FileState state_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {};
  return {status.st_size, status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

void require_unchanged(const std::string& path, const FileState& was, const FileState& is) {
  REQUIRE(is.bytes >= was.bytes,
          "'{}' was changed while it was in use: it had {} bytes and ends at byte {} now", path, was.bytes,
          is.bytes);
  REQUIRE(is == was,
          "'{}' was changed while it was in use: somebody has written to it since it was opened; put the new "
          "data beside it under another name",
          path);
}

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open_file(path, O_RDONLY)) {
  state_ = state_of(descriptor_);
  REQUIRE(state_.bytes >= 0, "cannot read the size of '{}': {}", path, text_of_errno(errno));
}

void InputFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  auto* to = static_cast<std::byte*>(out);
  const std::int64_t end = offset + bytes;
  while (bytes > 0) {
    const std::int64_t n = read_some(descriptor_, to, bytes, offset);
    REQUIRE(n >= 0, "'{}' cannot be read at byte {}: {}", path_, offset, text_of_errno(errno));
    if (n == 0) break;
    to += n, offset += n, bytes -= n;
  }
  require_unchanged(path_, state_, state_of(descriptor_));
  REQUIRE(bytes == 0, "'{}' has {} bytes, and bytes up to {} are asked for", path_, state_.bytes, end);
}

void InputFile::read_ahead(std::int64_t offset, std::int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

}  // namespace ztrain
