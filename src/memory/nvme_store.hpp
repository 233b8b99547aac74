#pragma once
// What is offloaded to NVMe drives: so many bytes of this process, read and written by transfers that are
// prepared once and started every step, beside what the host computes.
//
// The bytes lie in files without names (O_TMPFILE, or removed as soon as they are made), so that nothing is
// left of a run that dies, and nothing of an earlier run is ever read. Their room is taken when the store is
// made: a drive does not fill up in the middle of a step.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "memory/nvme/system.hpp"

namespace ztrain::memory {

struct NvmeOptions {
  std::vector<std::filesystem::path> paths;  ///< folders, which must be there; blocks go to each in turns
  int depth = 32;                            ///< requests under way, on all folders together
  std::int64_t block_bytes = std::int64_t{1} << 20;  ///< of one request, at most; a multiple of 4096
  bool checksums = false;  ///< of pages that are written, compared when they are read: 8 bytes for each
  int threads = 8;         ///< that carry requests out where io_uring may not be used
};

/// Bytes a second.
struct NvmeSpeed {
  double write = 0, read = 0;
  std::int64_t bytes = 0;  ///< from the first on, which were written over to find out
};
/// A sentence on drives that are much slower than NVMe; "" where there is nothing to say.
std::string nvme_warning(const NvmeSpeed& speed);

class NvmeStore {
 private:
  struct Core;

 public:
  /// One read or write. The memory belongs to it from start() until wait() returned or test() gave true; then
  /// it may be started again. Never allocates after construction. Which of two transfers of the same bytes
  /// comes first is the caller's to say, by waiting for one before the other is started.
  class Transfer {
   public:
    struct Parts;
    /// Of NvmeStore::read and write.
    Transfer(std::shared_ptr<Core> core, std::unique_ptr<Parts> parts);
    /// Requests that have not begun are left out; the others are waited for.
    ~Transfer();
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    void start();
    /// True once complete. It and wait() throw Error naming folder and byte where the system failed, or where
    /// what was read is not what was written; what was to be read, or the range, is then undefined.
    bool test();
    void wait();

   private:
    void finish();

    std::shared_ptr<Core> core_;
    std::unique_ptr<Parts> parts_;
    bool started_ = false;
  };

  /// Throws Error naming the folder that is not there, may not be written to, or has not enough room.
  NvmeStore(const NvmeOptions& options, std::int64_t bytes,
            std::shared_ptr<NvmeSystem> system = std::make_shared<NvmeSystem>());
  ~NvmeStore();
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  /// offset and address are multiples of 4096. bytes may be any number: the store takes whole pages of 4096
  /// from offset on, and a last page that is not full goes through one of the transfer's own, so that the
  /// memory needs no room behind its last byte.
  std::unique_ptr<Transfer> read(std::int64_t offset, void* to, std::int64_t bytes);
  std::unique_ptr<Transfer> write(std::int64_t offset, const void* from, std::int64_t bytes);

  /// Tells of memory, on a multiple of 4096, that transfers work on while the store lives: the system then
  /// looks it up, and locks it, once and not at every request. While nothing is under way. Where the system
  /// does not allow it (ulimit -l) all works without, and description() says so.
  void register_memory(void* memory, std::int64_t bytes);

  /// Writes over the store and reads it again for a fraction of a second. Before anything is in it.
  NvmeSpeed measure();

  /// "io_uring, direct I/O, 2 folders, depth 32 x 1.00 MiB", and what was refused, with the reason.
  std::string description() const;

 private:
  std::unique_ptr<Transfer> prepare(bool writes, std::int64_t offset, std::byte* memory, std::int64_t bytes);

  std::shared_ptr<Core> core_;
};

}  // namespace ztrain::memory
