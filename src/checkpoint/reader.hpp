#pragma once
// Internal to checkpoint. Reads runs of items of a checkpoint's tensors, wherever its pieces lie.

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

/// Returns whether both hold the same items in the same order.
bool same_slices(const TensorSlice& a, const TensorSlice& b);

/// Returns whether no block of `granule` elements of the tensor is in two slices, so that blocks of a slice
/// are blocks of the tensor.
bool follow_slices(const Shape& shape, const TensorSlice& slice, std::int64_t granule);

struct ItemRun {
  std::int64_t begin = 0, count = 0;
  bool operator==(const ItemRun&) const = default;
};

/// Returns a piece's share of items [begin, begin + count) of its slice, in runs of about this many bytes, a
/// multiple of checksum_block. No block is in two runs, so each is read once.
std::vector<ItemRun> runs_of_blocks(const PieceRow& piece, std::int64_t begin, std::int64_t count,
                                    std::int64_t bytes);

/// Throws Damaged if the file is missing or has another size.
PosixFile open_shard_file(const std::filesystem::path& folder, const FileEntry& entry);

/// Reads a checkpoint. One thread makes all calls of a Reader; a copy reads the same checkpoint on another
/// thread.
class Reader {
 public:
  /// Reads the index of a checkpoint. With verify, compares every block that is read with its checksum.
  Reader(const std::filesystem::path& folder, bool verify, PageCache cache = PageCache::through);

  const Catalog& catalog() const { return checkpoint_->index.catalog; }
  /// Returns the pieces of one state of one parameter; both are places in the catalog.
  std::span<const PieceRow> pieces(std::int64_t state, std::int64_t parameter) const;
  /// Returns the pieces of the weights of a parameter, or of their averages if it is trained and those are
  /// wanted. Throws Error if the checkpoint holds no such state.
  std::span<const PieceRow> weights(std::int64_t parameter, WeightValues values) const;
  /// Puts the wanted items that the piece holds to their places in `to`, which begins with the first wanted
  /// one, and returns their number. Throws Damaged if a shard file is missing, truncated or damaged.
  std::int64_t read(const PieceRow& piece, const Wanted& wanted, std::byte* to, DType dtype);

 private:
  struct ShardFile {
    PosixFile cached;
    std::optional<PosixFile> direct;  ///< past the page cache, if that is wanted and possible
  };
  /// State that copies of a reader share. Files are opened when they are first read.
  struct Checkpoint {
    std::filesystem::path folder;
    Index index;
    PageCache cache;
    std::mutex mutex;
    std::map<std::int64_t, ShardFile> files;
    const ShardFile& file(std::int64_t number);
  };

  /// Copies items of one written piece, block by block.
  void copy_items(const PieceRow& row, std::int64_t from, std::int64_t count, std::byte* to, DType to_type);
  /// Returns bytes [begin, begin + bytes) of a piece, which lie in one of its blocks. Verifying reads the
  /// whole block, once for successive calls.
  const std::byte* bytes_at(const PieceRow& row, std::int64_t block, std::int64_t begin, std::int64_t bytes);
  /// Reads a block of a piece, of this many bytes, as it was written.
  void read_block(const PieceRow& row, std::int64_t block, std::int64_t bytes, std::byte* to);

  /// Asks the system to read ahead what is not read past the page cache.
  void read_ahead(const PieceRow& row, std::int64_t bytes, std::int64_t begin) const;
  /// Reads past the page cache. Returns false if the bytes are to be read in the other way.
  bool read_direct(const ShardFile& file, std::int64_t offset, std::int64_t bytes, std::byte* to);

  std::shared_ptr<Checkpoint> checkpoint_;
  bool verify_;
  std::vector<std::byte> block_;
  /// Memory for reads past the page cache; each Reader makes its own.
  std::shared_ptr<memory::HugeBuffer> pages_;
  std::optional<std::int64_t> loaded_;  ///< number of the checksum of the block in block_
};

}  // namespace ztrain::checkpoint
