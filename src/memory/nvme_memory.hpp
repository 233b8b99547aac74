#pragma once
// NVMe as a kind of memory: arenas whose addresses name bytes of an NvmeStore. Nothing may be read or written
// through the addresses; the system stops an access at once.

#include <memory>
#include <string>
#include <vector>

#include "memory/nvme_store.hpp"
#include "memory/provider.hpp"

namespace ztrain::memory {

class NvmeMemory final : public Provider {
 public:
  explicit NvmeMemory(NvmeOptions options);
  ~NvmeMemory() override;

  /// Makes a store of this many bytes. Throws what NvmeStore throws; without folders, throws Error that names
  /// the key of the deck.
  std::byte* allocate(const std::string& name, std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) noexcept override;
  bool host_accessible() const override { return false; }
  // These take any bytes, and move them some MiB at a time through memory of their own.
  void fill(void* data, int value, std::int64_t bytes) override;
  void write(void* data, const void* host, std::int64_t bytes) override;
  void read(void* host, const void* data, std::int64_t bytes) const override;
  /// Returns the limits of the folders' file systems. A file system that several folders share counts that
  /// often.
  MachineMemory limits() const override;
  std::int64_t resident_bytes(const std::byte*, std::int64_t) const override { return 0; }

  /// Prepares a transfer of [kept, kept + bytes) from or to the host's memory. Returns null if these are not
  /// whole pages, for which read() and write() are. to_end says that the last page holds nothing after these
  /// bytes.
  std::unique_ptr<NvmeStore::Transfer> transfer(bool writes, std::byte* kept, std::byte* host,
                                                std::int64_t bytes, bool to_end);
  /// Tells all stores of memory that transfers work on (NvmeStore::register_memory).
  void register_memory(void* host, std::int64_t bytes);

  /// Describes the stores for the log; "" before anything was allocated.
  std::string description() const;
  /// Returns a sentence if the drives are much too slow, else "".
  std::string warning() const;

 private:
  struct Region;
  Region& region_of(const std::byte* data) const;

  NvmeOptions options_;
  std::vector<std::unique_ptr<Region>> regions_;
  NvmeSpeed speed_;
};

}  // namespace ztrain::memory
