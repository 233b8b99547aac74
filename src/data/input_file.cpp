#include "data/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"

namespace ztrain::data {
namespace {

constexpr std::int64_t largest_call = std::int64_t{1} << 30;  // Linux moves less than 2 GiB a call

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open_file(path, O_RDONLY)) {
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0) {
    size_ = status.st_size;
    return;
  }
  const int error = errno;
  ::close(descriptor_);
  fail("cannot read the size of '{}': {}", path, std::strerror(error));
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::int64_t offset, std::int64_t bytes, void* out) const {
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const auto n = ::pread(descriptor_, to, static_cast<std::size_t>(std::min(bytes, largest_call)), offset);
    if (n < 0 && errno == EINTR) continue;
    REQUIRE(n >= 0, "'{}' cannot be read at byte {}: {}", path_, offset, std::strerror(errno));
    REQUIRE(n > 0, "'{}' was changed while it was in use: it had {} bytes and ends at byte {} now", path_,
            size_, offset);
    to += n, offset += n, bytes -= n;
  }
}

}  // namespace ztrain::data
