#include "memory/nvme/files.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "files/file.hpp"

namespace ztrain::memory {
namespace {

std::string bytes_text(std::int64_t bytes) {
  return fmt::format("{} bytes ({})", bytes, format_bytes(static_cast<double>(bytes)));
}

[[noreturn]] void refuse_folder(const std::filesystem::path& folder, int error) {
  fail(
      "{}: cannot make a file in '{}': {}: name folders that are there, on drives of this node, in which "
      "this user may write",
      nvme_key, folder.string(), text_of_errno(error));
}

/// Makes a file without a name, so that nothing of it is left however the process ends.
int make_nameless(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // EISDIR comes from a kernel, and EOPNOTSUPP and EINVAL from a file system, without such files.
  if (descriptor >= 0 || (errno != EISDIR && errno != EOPNOTSUPP && errno != EINVAL)) return descriptor;
  std::string name = (folder / "ztrain-nvme-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

/// Returns the bytes that this user may still write there; -1: not known.
std::int64_t free_bytes(int descriptor) {
  struct statvfs system {};
  if (::fstatvfs(descriptor, &system) != 0 || system.f_blocks == 0) return -1;
  const auto blocks = ::geteuid() == 0 ? system.f_bfree : system.f_bavail;
  return static_cast<std::int64_t>(blocks) * static_cast<std::int64_t>(system.f_frsize);
}

[[noreturn]] void no_room(const std::filesystem::path& folder, std::int64_t bytes, std::int64_t free,
                          int error) {
  fail(
      "{}: '{}' cannot take {} of what is offloaded: {}; {} are free there: make room, name more folders, or "
      "offload less",
      nvme_key, folder.string(), bytes_text(bytes), text_of_errno(error),
      free < 0 ? "an unknown number of bytes" : bytes_text(free));
}

}  // namespace

void FreePages::operator()(std::byte* pages) const {
  std::free(pages);
}

NvmePages nvme_pages(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(round_up(bytes, nvme_page));
  NvmePages pages(static_cast<std::byte*>(std::aligned_alloc(nvme_page, size)));
  REQUIRE(pages != nullptr, "out of host memory: a buffer of the NVMe store needs {} bytes", size);
  std::memset(pages.get(), 0, size);
  return pages;
}

int NvmeSystem::reserve(int descriptor, std::int64_t bytes) {
  int status = 0;
  do status = ::fallocate(descriptor, 0, 0, bytes);
  while (status != 0 && errno == EINTR);
  return status == 0 ? 0 : errno;
}

int NvmeSystem::go_direct(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0 ? 0 : errno;
}

NvmeFiles::NvmeFiles(const std::vector<std::filesystem::path>& folders, std::int64_t bytes,
                     std::int64_t block, NvmeSystem& system)
    : block_(block) {
  ASSERT(block > 0 && block % nvme_page == 0, "a block of {} bytes is not whole pages", block);
  ASSERT(!folders.empty() && bytes > 0, "an NVMe store of {} folders and {} bytes", folders.size(), bytes);
  const auto count = std::ssize(folders);
  for (std::int64_t f = 0; f < count; ++f) {
    const std::filesystem::path& folder = folders[static_cast<std::size_t>(f)];
    File file{folder, Descriptor(make_nameless(folder))};
    if (file.descriptor < 0) refuse_folder(folder, errno);
    // Files have whole blocks, except for the last one of all. Each has at least a page for the trial.
    const std::int64_t whole = bytes / block, rest = whole % count == f ? bytes % block : 0;
    const std::int64_t blocks = whole / count + (f < whole % count ? 1 : 0);
    reserve(file, std::max(nvme_page, blocks * block + round_up(rest, nvme_page)), system);
    try_page(file, system);
    files_.push_back(std::move(file));
  }
}

void NvmeFiles::reserve(const File& file, std::int64_t bytes, NvmeSystem& system) {
  // A file system may fill up to its last byte before it refuses, which its other users would feel.
  const std::int64_t free = free_bytes(file.descriptor);
  if (free >= 0 && free < bytes) no_room(file.folder, bytes, free, ENOSPC);
  const int error = system.reserve(file.descriptor, bytes);
  if (error == 0) return;
  if (error != EOPNOTSUPP && error != ENOSYS) no_room(file.folder, bytes, free_bytes(file.descriptor), error);
  if (::ftruncate(file.descriptor, bytes) != 0) no_room(file.folder, bytes, free, errno);
  unreserved_ = file.folder.string();
}

void NvmeFiles::try_page(const File& file, NvmeSystem& system) {
  const NvmePages page = nvme_pages(nvme_page);
  const auto try_it = [&] {
    errno = EIO;  // a page was moved in part
    const bool works = write_some(file.descriptor, page.get(), nvme_page, 0) == nvme_page &&
                       read_some(file.descriptor, page.get(), nvme_page, 0) == nvme_page;
    return works ? 0 : errno;
  };
  const auto require_none = [&](int error) {
    REQUIRE(error == 0, "{}: cannot use a file in '{}': {}", nvme_key, file.folder.string(),
            text_of_errno(error));
  };
  int error = system.go_direct(file.descriptor);
  if (error == 0) error = try_it();
  if (error != EINVAL && error != EOPNOTSUPP) return require_none(error);
  refused_ = fmt::format("'{}' refuses direct I/O: {}", file.folder.string(), std::strerror(error));
  const int flags = ::fcntl(file.descriptor, F_GETFL);
  if (flags >= 0) ::fcntl(file.descriptor, F_SETFL, flags & ~O_DIRECT);
  require_none(try_it());
}

NvmeFiles::Place NvmeFiles::place(std::int64_t offset) const {
  const std::int64_t block = offset / block_, inside = offset % block_, count = std::ssize(files_);
  return {static_cast<std::size_t>(block % count), block / count * block_ + inside, block_ - inside};
}

std::string NvmeFiles::description() const {
  return fmt::format("{}, {} folder{}{}",
                     refused_.empty() ? "direct I/O" : fmt::format("buffered I/O ({})", refused_),
                     files_.size(), files_.size() == 1 ? "" : "s",
                     unreserved_.empty() ? "" : fmt::format(" ('{}' cannot reserve space)", unreserved_));
}

}  // namespace ztrain::memory
