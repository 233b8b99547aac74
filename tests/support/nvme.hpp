#pragma once
// NVMe stores in folders of a test's own, and what they rest on with faults planted.

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/nvme/files.hpp"
#include "memory/nvme_store.hpp"

namespace ztrain::test {

/// Folders that go with it.
class NvmeFolders {
 public:
  explicit NvmeFolders(int count) {
    for (int f = 0; f < count; ++f) {
      std::string name = (std::filesystem::temp_directory_path() / "ztrain-nvme-XXXXXX").string();
      if (mkdtemp(name.data()) != nullptr) paths_.emplace_back(name);
    }
  }
  ~NvmeFolders() {
    std::error_code ignored;
    for (const auto& path : paths_) std::filesystem::remove_all(path, ignored);
  }
  NvmeFolders(const NvmeFolders&) = delete;
  NvmeFolders& operator=(const NvmeFolders&) = delete;

  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  const std::filesystem::path& operator[](std::size_t f) const { return paths_[f]; }

 private:
  std::vector<std::filesystem::path> paths_;
};

/// What a test makes of the system; what is not set is as it is.
class PlantedSystem final : public memory::NvmeSystem {
 public:
  int ring_error = 0, reserve_error = 0, direct_error = 0;
  std::function<std::int64_t(bool writes, std::int64_t offset, std::int64_t bytes)> asks;
  std::function<std::int64_t(bool writes, std::int64_t offset, std::int64_t answer)> answers;
  std::atomic<int> asked{0}, answered{0};

  int allow_ring() override { return ring_error; }
  int reserve(int descriptor, std::int64_t bytes) override {
    return reserve_error != 0 ? reserve_error : NvmeSystem::reserve(descriptor, bytes);
  }
  int go_direct(int descriptor) override {
    return direct_error != 0 ? direct_error : NvmeSystem::go_direct(descriptor);
  }
  std::int64_t ask(bool writes, std::int64_t offset, std::int64_t bytes) override {
    ++asked;
    return asks ? asks(writes, offset, bytes) : bytes;
  }
  std::int64_t answer(bool writes, std::int64_t offset, std::int64_t answer) override {
    ++answered;
    return answers ? answers(writes, offset, answer) : answer;
  }
};

/// The two ways in which requests are carried out.
enum class NvmeWay { ring, threads };

inline std::shared_ptr<PlantedSystem> planted_system(NvmeWay way) {
  auto system = std::make_shared<PlantedSystem>();
  if (way == NvmeWay::threads) system->ring_error = EPERM;
  return system;
}

/// Small blocks and few of them at once, so that little data goes through all of the store.
inline memory::NvmeOptions nvme_options(const NvmeFolders& folders, bool checksums = false) {
  memory::NvmeOptions options;
  options.paths = folders.paths();
  options.depth = 4;
  options.block_bytes = 8192;
  options.checksums = checksums;
  options.threads = 3;
  return options;
}

/// Bytes of this process's files in a folder, of which none has a name any more.
inline std::vector<int> nameless_files(const std::filesystem::path& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.rfind(folder.string() + "/", 0) == 0) found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

/// A byte of a file of which only the descriptor is known, past its flags.
inline std::byte byte_on_disk(int descriptor, std::int64_t offset) {
  const int own = ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC);
  std::byte byte{};
  if (::pread(own, &byte, 1, offset) != 1) byte = std::byte{0xEE};
  ::close(own);
  return byte;
}

/// Changes one byte; false: it could not.
inline bool flip_byte_on_disk(int descriptor, std::int64_t offset) {
  const std::byte flipped = byte_on_disk(descriptor, offset) ^ std::byte{1};
  const int own = ::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_WRONLY | O_CLOEXEC);
  const bool wrote = ::pwrite(own, &flipped, 1, offset) == 1 && ::fsync(own) == 0;
  ::close(own);
  return wrote;
}

/// Bytes that differ from place to place and from salt to salt.
inline void fill_bytes(std::byte* memory, std::int64_t bytes, int salt) {
  for (std::int64_t i = 0; i < bytes; ++i)
    memory[i] = static_cast<std::byte>((i * 2654435761 + i / 4096 * 97 + salt * 131) >> 3);
}

}  // namespace ztrain::test
