#include "files/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "files/file.hpp"

namespace ztrain {

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open_file(path, O_RDONLY)) {
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0) {
    size_ = status.st_size;
    return;
  }
  const int error = errno;
  ::close(descriptor_);
  fail("cannot read the size of '{}': {}", path, text_of_errno(error));
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void fail_shrunk(const std::string& path, std::int64_t had, std::int64_t end) {
  fail("'{}' was changed while it was in use: it had {} bytes and ends at byte {} now", path, had, end);
}

void InputFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const std::int64_t n = read_some(descriptor_, to, bytes, offset);
    REQUIRE(n >= 0, "'{}' cannot be read at byte {}: {}", path_, offset, text_of_errno(errno));
    if (n == 0) fail_shrunk(path_, size_, offset);
    to += n, offset += n, bytes -= n;
  }
}

}  // namespace ztrain
