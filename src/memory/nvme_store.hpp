#pragma once
// Keeps bytes of this process on NVMe drives. Transfers are prepared once and started every step, and run
// beside the host's computation.
//
// The bytes lie in files without names (O_TMPFILE, or removed as soon as they are made). Nothing is left of a
// run that dies, and nothing of an earlier run is ever read. Their room is taken when the store is made, so a
// drive does not fill up in the middle of a step.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "memory/nvme/files.hpp"

namespace ztrain::memory {

struct NvmeOptions {
  std::vector<std::filesystem::path> paths;          ///< existing folders; blocks go to each in turn
  int depth = 32;                                    ///< requests under way, on all folders together
  std::int64_t block_bytes = std::int64_t{1} << 20;  ///< most bytes of one request, a multiple of 4096
  /// Whether pages are compared when read with a checksum of what was written; takes 8 bytes for each.
  bool checksums = false;
  int threads = 8;  ///< number of threads that carry out requests if io_uring may not be used
};

/// Bytes per second.
struct NvmeSpeed {
  double write = 0, read = 0;
  std::int64_t bytes = 0;  ///< bytes from the start that the measurement wrote over
};
/// Returns a sentence on drives that are much slower than NVMe; "" for others.
std::string nvme_warning(const NvmeSpeed& speed);

class NvmeStore {
 private:
  struct Core;

 public:
  /// One read or write. The memory belongs to it from start() until wait() returned or test() gave true; then
  /// it may be started again. Never allocates after construction. The caller orders two transfers of the same
  /// bytes, by waiting for one before it starts the other.
  class Transfer {
   public:
    struct Parts;
    /// NvmeStore::read and write make transfers.
    Transfer(std::shared_ptr<Core> core, std::unique_ptr<Parts> parts);
    /// Leaves out requests that have not begun, and waits for the others.
    ~Transfer();
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    void start();
    /// Returns true once complete. test() and wait() throw Error naming folder and byte if the system failed,
    /// or if what was read is not what was written. The bytes that were read, or the range, are then
    /// undefined.
    bool test();
    void wait();

   private:
    void finish();

    std::shared_ptr<Core> core_;
    std::unique_ptr<Parts> parts_;
    bool started_ = false;
  };

  /// Throws Error naming the folder if it is missing, may not be written to, or has not enough room.
  NvmeStore(const NvmeOptions& options, std::int64_t bytes,
            std::shared_ptr<NvmeSystem> system = std::make_shared<NvmeSystem>());
  ~NvmeStore();
  NvmeStore(const NvmeStore&) = delete;
  NvmeStore& operator=(const NvmeStore&) = delete;

  /// Prepare transfers. offset and address are multiples of 4096. bytes may be any number: the store takes
  /// whole pages from offset on, and a partial last page goes through a page of the transfer's own, so the
  /// memory needs no room after its last byte.
  std::unique_ptr<Transfer> read(std::int64_t offset, void* to, std::int64_t bytes);
  std::unique_ptr<Transfer> write(std::int64_t offset, const void* from, std::int64_t bytes);

  /// Tells of memory, on a multiple of 4096, that transfers work on while the store lives: the system then
  /// looks it up and locks it once, not at every request. Nothing may be under way. If the system does not
  /// allow it (ulimit -l), everything works without, and description() says so.
  void register_memory(void* memory, std::int64_t bytes);

  /// Measures the speed: writes over the store and reads it again for a fraction of a second. The store must
  /// be unused.
  NvmeSpeed measure();

  /// Returns text such as "io_uring, direct I/O, 2 folders, depth 32 x 1.00 MiB", and what was refused, with
  /// the reason.
  std::string description() const;

 private:
  std::unique_ptr<Transfer> prepare(bool writes, std::int64_t offset, std::byte* memory, std::int64_t bytes);

  std::shared_ptr<Core> core_;
};

}  // namespace ztrain::memory
