#pragma once
// Keeps the bytes of an NVMe store as files without names, one in each folder, block by block in turn.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "files/descriptor.hpp"
#include "memory/nvme/system.hpp"

namespace ztrain::memory {

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
