#pragma once
// Keeps the bytes of an NVMe store as files without names, one in each folder, block by block in turn. A
// class stands for the calls to the system.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/posix_file.hpp"

namespace ztrain::memory {

/// Calls of the NVMe store to the system. A test derives from this class to plant what disks do. Threads of
/// the store call ask() and answer(), several at once.
class NvmeSystem {
 public:
  virtual ~NvmeSystem() = default;

  /// Takes the room of a file (fallocate). Returns 0 or errno.
  virtual int reserve(int descriptor, std::int64_t bytes);
  /// Lets reads and writes of the file bypass the page cache. Returns 0 or errno.
  virtual int go_direct(int descriptor);
  /// Returns 0, or errno if io_uring may not be used.
  virtual int allow_ring() { return 0; }

  /// Returns how many bytes to ask the system for if `bytes` are wanted from `offset` of a file on.
  virtual std::int64_t ask(bool writes, std::int64_t offset, std::int64_t bytes) {
    static_cast<void>(writes), static_cast<void>(offset);
    return bytes;
  }
  /// Returns what the store takes for the system's answer: bytes, or an error below zero.
  virtual std::int64_t answer(bool writes, std::int64_t offset, std::int64_t answer) {
    static_cast<void>(writes), static_cast<void>(offset);
    return answer;
  }
};

/// Direct I/O wants offsets, lengths and addresses to be multiples of this.
constexpr std::int64_t nvme_page = 4096;

/// The key of the deck, for messages.
constexpr std::string_view nvme_key = "offload.nvme_path";

struct FreePages {
  void operator()(std::byte* pages) const;
};
/// Zeros, aligned to nvme_page.
using NvmePages = std::unique_ptr<std::byte[], FreePages>;
NvmePages nvme_pages(std::int64_t bytes);

class NvmeFiles {
 public:
  /// Makes the files, takes their room and tries each with a page. block counts bytes that follow each other
  /// in one file, a multiple of nvme_page. Throws Error naming the folder in which that fails.
  NvmeFiles(const std::vector<std::filesystem::path>& folders, std::int64_t bytes, std::int64_t block,
            NvmeSystem& system);

  struct Place {
    std::size_t file;
    std::int64_t offset;     ///< offset in that file
    std::int64_t to_border;  ///< bytes from there to the end of the block
  };
  Place place(std::int64_t offset) const;
  int descriptor(std::size_t file) const { return files_[file].descriptor; }
  const std::filesystem::path& folder(std::size_t file) const { return files_[file].folder; }
  /// Returns text such as "direct I/O, 2 folders", or what was refused, and where.
  std::string description() const;

 private:
  struct File {
    std::filesystem::path folder;
    Descriptor descriptor;
  };
  void reserve(const File& file, std::int64_t bytes, NvmeSystem& system);
  void try_page(const File& file, NvmeSystem& system);

  std::vector<File> files_;
  std::int64_t block_;
  std::string refused_;  ///< a folder that has no direct I/O, and why
  std::string unreserved_;
};

}  // namespace ztrain::memory
