#include "checkpoint/read/reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "checkpoint/damaged.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "files/file.hpp"
#include "memory/provider.hpp"

namespace ztrain::checkpoint {
namespace {

/// The runs of a slice in the whole tensor.
std::vector<LogicalRun> runs_of(const ParameterEntry& parameter, const TensorSlice& slice, std::int64_t index,
                                std::int64_t begin, std::int64_t count) {
  const Layout alone({{parameter.name, parameter.shape, slice, 0, true}}, 1, 1);
  return alone.logical_runs(0, static_cast<int>(index), begin, count);
}

struct ByTensor {
  using Key = std::pair<std::int64_t, std::int64_t>;
  bool operator()(const PieceRow& row, const Key& key) const { return Key(row.state, row.parameter) < key; }
  bool operator()(const Key& key, const PieceRow& row) const { return key < Key(row.state, row.parameter); }
};

/// Items that a written piece and a wanted piece share: `from` counts in the written piece, `to` in the
/// wanted one.
struct Copy {
  std::int64_t from = 0, to = 0, count = 0;
};

/// Both lists ascend in the slice and in the whole tensor.
std::vector<Copy> overlap(const std::vector<LogicalRun>& written, std::int64_t written_begin,
                          const std::vector<LogicalRun>& wanted, std::int64_t wanted_begin) {
  std::vector<Copy> copies;
  for (std::size_t i = 0, j = 0; i < written.size() && j < wanted.size();) {
    const LogicalRun &a = written[i], &b = wanted[j];
    const std::int64_t a_end = a.logical_begin + a.count, b_end = b.logical_begin + b.count;
    const std::int64_t begin = std::max(a.logical_begin, b.logical_begin), end = std::min(a_end, b_end);
    if (begin < end)
      copies.push_back({a.slice_begin - written_begin + begin - a.logical_begin,
                        b.slice_begin - wanted_begin + begin - b.logical_begin, end - begin});
    a_end < b_end ? ++i : ++j;
  }
  return copies;
}

std::vector<Copy> copies_between(const ParameterEntry& parameter, const PieceRow& row, const Wanted& wanted) {
  const TensorSlice written = slices_of(parameter, row);
  if (same_slices(written, wanted.slice)) {
    if (row.tensor_index != wanted.tensor_index) return {};
    // The same slices: whole ranges, in the slice's own indices.
    return overlap({{row.slice_begin, row.slice_begin, row.count}}, row.slice_begin,
                   {{wanted.slice_begin, wanted.slice_begin, wanted.count}}, wanted.slice_begin);
  }
  return overlap(runs_of(parameter, written, row.tensor_index, row.slice_begin, row.count), row.slice_begin,
                 runs_of(parameter, wanted.slice, wanted.tensor_index, wanted.slice_begin, wanted.count),
                 wanted.slice_begin);
}

Index read_intact_index(const std::filesystem::path& folder) {
  require_intact_index(folder);
  return read_index(folder / index_name);
}

constexpr std::int64_t ahead = 4 * checksum_block;  ///< bytes that the system reads while others are checked
constexpr std::int64_t least_direct = checksum_block / 2;  ///< fewer bytes come sooner through the page cache

}  // namespace

PosixFile open_shard_file(const std::filesystem::path& folder, const FileEntry& entry) {
  const std::filesystem::path path = folder / entry.name;
  if (!file_exists(path.string()))
    fail_damaged("cannot read '{}': No such file or directory, though the index names it", path.string());
  PosixFile opened = PosixFile::open_to_read(path);
  if (opened.size() != entry.bytes)
    fail_damaged("{}: is truncated or was changed: it has {} bytes, not {}", path.string(), opened.size(),
                 entry.bytes);
  return opened;
}

bool same_slices(const TensorSlice& a, const TensorSlice& b) {
  return a == b || (a.parts == 1 && b.parts == 1);
}

std::vector<ItemRun> runs_of_blocks(const PieceRow& piece, std::int64_t begin, std::int64_t count,
                                    std::int64_t bytes) {
  const std::int64_t first = std::max(begin, piece.slice_begin),
                     end = std::min(begin + count, piece.slice_begin + piece.count),
                     most = bytes / size_of(piece.type());
  std::vector<ItemRun> runs;
  for (std::int64_t at = first, next = 0; at < end; at = next) {
    // Blocks count from where the piece begins.
    next = std::min(end, piece.slice_begin + ((at - piece.slice_begin) / most + 1) * most);
    runs.push_back({at, next - at});
  }
  return runs;
}

Reader::Reader(const std::filesystem::path& folder, bool verify)
    : checkpoint_(std::make_shared<Checkpoint>()), verify_(verify) {
  checkpoint_->folder = folder;
  checkpoint_->index = read_intact_index(folder);
}

std::span<const PieceRow> Reader::pieces(std::int64_t state, std::int64_t parameter) const {
  const auto& all = checkpoint_->index.pieces;
  const auto [first, last] =
      std::equal_range(all.begin(), all.end(), std::pair(state, parameter), ByTensor{});
  return {first, last};
}

std::int64_t Reader::read(const PieceRow& piece, const Wanted& wanted, std::byte* to, DType dtype) {
  const ParameterEntry& parameter = catalog().parameters[static_cast<std::size_t>(piece.parameter)];
  std::int64_t found = 0;
  for (const Copy& copy : copies_between(parameter, piece, wanted)) {
    copy_items(piece, copy.from, copy.count, to + copy.to * size_of(dtype), dtype);
    found += copy.count;
  }
  return found;
}

void Reader::copy_items(const PieceRow& row, std::int64_t from, std::int64_t count, std::byte* to,
                        DType to_type) {
  const std::int64_t size = size_of(row.type()), per_block = checksum_block / size;
  const bool as_written = row.type() == to_type;
  for (std::int64_t asked = from; count > 0;) {
    std::int64_t n = as_written ? read_direct(row, from, count, to) : 0;
    if (n == 0) {
      if (from >= asked && count > per_block) {
        file_of(row).read_ahead(std::min(2 * ahead, count * size), row.byte_offset + from * size);
        asked = from + ahead / size;
      }
      n = std::min(count, (from / per_block + 1) * per_block - from);
      copy_from_block(row, from, n, to, to_type);
    }
    to += n * size_of(to_type);
    from += n;
    count -= n;
  }
}

void Reader::copy_from_block(const PieceRow& row, std::int64_t from, std::int64_t count, std::byte* to,
                             DType to_type) {
  const std::int64_t size = size_of(row.type()), per_block = checksum_block / size, block = from / per_block;
  const bool whole = from % per_block == 0 && from + count == std::min((block + 1) * per_block, row.count);
  if (row.type() != to_type || (verify_ && !whole))
    convert(bytes_at(row, block, from * size, count * size), row.type(), to, to_type, count);
  else if (verify_)
    read_block(row, block, count * size, to);
  else
    file_of(row).read_at(to, count * size, row.byte_offset + from * size);
}

std::int64_t Reader::read_direct(const PieceRow& row, std::int64_t from, std::int64_t count, std::byte* to) {
  const std::int64_t size = size_of(row.type()), begin = from * size;
  if (begin % checksum_block != 0) return 0;
  std::int64_t bytes = std::min(count * size, checkpoint_part);
  if (begin + bytes != row.bytes()) bytes = bytes / checksum_block * checksum_block;
  if (bytes < least_direct) return 0;
  const std::int64_t offset = row.byte_offset + begin, first_page = page_down(offset);
  const ShardFile& opened = checkpoint_->file(row.file);
  if (!opened.direct || opened.file.is_cached(bytes, offset)) return 0;
  loaded_.reset();
  const std::byte* const from_disk = room_for(offset);
  const std::int64_t came =
      opened.direct->read_direct(room_for(0), page_up(offset + bytes) - first_page, first_page);
  if (came < offset + bytes - first_page) return 0;
  for (std::int64_t at = 0; at < bytes; at += checksum_block) {
    const std::int64_t length = std::min(checksum_block, bytes - at);
    if (verify_) require_checksum(row, (begin + at) / checksum_block, length, from_disk + at);
    std::memcpy(to + at, from_disk + at, static_cast<std::size_t>(length));
  }
  return bytes / size;
}

const std::byte* Reader::bytes_at(const PieceRow& row, std::int64_t block, std::int64_t begin,
                                  std::int64_t bytes) {
  std::byte* const room = room_for(0);
  if (!verify_) {
    file_of(row).read_at(room, bytes, row.byte_offset + begin);
    return room;
  }
  const std::int64_t block_begin = block * checksum_block, checksum = row.first_checksum + block;
  if (loaded_ != checksum) {
    loaded_.reset();
    const std::int64_t length = std::min(checksum_block, row.bytes() - block_begin);
    read_block(row, block, length, room);
    file_of(row).read_ahead(std::min(ahead, row.bytes() - block_begin - length),
                            row.byte_offset + block_begin + length);
    loaded_ = checksum;
  }
  return room + (begin - block_begin);
}

void Reader::read_block(const PieceRow& row, std::int64_t block, std::int64_t bytes, std::byte* to) {
  file_of(row).read_at(to, bytes, row.byte_offset + block * checksum_block);
  require_checksum(row, block, bytes, to);
}

void Reader::require_checksum(const PieceRow& row, std::int64_t block, std::int64_t bytes,
                              const std::byte* data) {
  const auto found = static_cast<std::int64_t>(hash_bytes(data, static_cast<std::size_t>(bytes)));
  if (found != checkpoint_->index.checksums[static_cast<std::size_t>(row.first_checksum + block)])
    fail_damaged("{}: {} bytes at offset {} do not have their checksum, the file is damaged",
                 file_of(row).path().string(), bytes, row.byte_offset + block * checksum_block);
}

std::byte* Reader::room_for(std::int64_t offset) {
  if (!room_) room_ = std::make_unique<LaneBuffers>(memory::host_memory(), 1, checkpoint_part);
  return room_->for_offset(0, offset);
}

const Reader::ShardFile& Reader::Checkpoint::file(std::int64_t number) {
  const std::lock_guard lock(mutex);
  const auto open = files.find(number);
  if (open != files.end()) return open->second;
  PosixFile opened = open_shard_file(folder, index.files[static_cast<std::size_t>(number)]);
  std::optional<PosixFile> direct = PosixFile::open_direct(opened);
  return files.emplace(number, ShardFile{std::move(opened), std::move(direct)}).first->second;
}

}  // namespace ztrain::checkpoint
