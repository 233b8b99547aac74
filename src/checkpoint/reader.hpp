#pragma once
// Runs of items of a checkpoint's tensors, wherever its pieces lie. Internal to checkpoint.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "files/posix_file.hpp"
#include "memory/huge_buffer.hpp"

namespace ztrain::checkpoint {

/// A run of items of a tensor-parallel slice of one parameter.
struct Wanted {
  TensorSlice slice;
  int tensor_index = 0;
  std::int64_t slice_begin = 0, count = 0;
};

/// Both hold the same items in the same order.
bool same_slices(const TensorSlice& a, const TensorSlice& b);

struct ItemRun {
  std::int64_t begin = 0, count = 0;
  bool operator==(const ItemRun&) const = default;
};

/// What a piece has of items [begin, begin + count) of its slice, in runs of about so many bytes of it, a
/// multiple of checksum_block. No block is in two of them: each is read once, whoever reads which run.
std::vector<ItemRun> runs_of_blocks(const PieceRow& piece, std::int64_t begin, std::int64_t count,
                                    std::int64_t bytes);

/// Throws Damaged where the file is missing, or has another size.
PosixFile open_shard_file(const std::filesystem::path& folder, const FileEntry& entry);

/// One thread makes all calls of a Reader; a copy of it reads the same checkpoint for another thread.
class Reader {
 public:
  /// Reads the index of a checkpoint. verify: check every block of bytes that is read against its checksum.
  Reader(const std::filesystem::path& folder, bool verify, PageCache cache = PageCache::through);

  const Catalog& catalog() const { return checkpoint_->index.catalog; }
  /// The pieces of one state of one parameter; both by their place in the catalog.
  std::span<const PieceRow> pieces(std::int64_t state, std::int64_t parameter) const;
  /// Puts those wanted items that the piece holds to their places in `to`, which begins with the first wanted
  /// one, and gives their number. Throws Damaged when a shard file is missing, truncated or damaged.
  std::int64_t read(const PieceRow& piece, const Wanted& wanted, std::byte* to, DType dtype);

 private:
  struct ShardFile {
    PosixFile cached;
    std::optional<PosixFile> direct;  ///< past the page cache, where that is wanted and can be
  };
  /// What copies of a reader share. Files are opened when they are first read.
  struct Checkpoint {
    std::filesystem::path folder;
    Index index;
    PageCache cache;
    std::mutex mutex;
    std::map<std::int64_t, ShardFile> files;
    const ShardFile& file(std::int64_t number);
  };

  /// Items of one written piece, block by block.
  void copy_items(const PieceRow& row, std::int64_t from, std::int64_t count, std::byte* to, DType to_type);
  /// Bytes [begin, begin + bytes) of a piece, which lie in one of its blocks. Verifying reads the whole
  /// block, once for successive calls.
  const std::byte* bytes_at(const PieceRow& row, std::int64_t block, std::int64_t begin, std::int64_t bytes);
  /// A block of a piece, which has so many bytes, as it was written.
  void read_block(const PieceRow& row, std::int64_t block, std::int64_t bytes, std::byte* to);

  /// Has the system begin to read what is not read past the page cache.
  void read_ahead(const PieceRow& row, std::int64_t bytes, std::int64_t begin) const;
  /// Past the page cache. False: they are to be read in the other way.
  bool read_direct(const ShardFile& file, std::int64_t offset, std::int64_t bytes, std::byte* to);

  std::shared_ptr<Checkpoint> checkpoint_;
  bool verify_;
  std::vector<std::byte> block_;
  std::shared_ptr<memory::HugeBuffer> pages_;  ///< of the disk; each Reader makes its own
  std::optional<std::int64_t> loaded_;         ///< the number of the checksum of the block in block_
};

}  // namespace ztrain::checkpoint
