#include "checkpoint/reader.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "files/file.hpp"

namespace ztrain::checkpoint {
namespace {

/// Returns the runs of a slice in the whole tensor.
std::vector<LogicalRun> runs_of(const Shape& shape, const TensorSlice& slice, std::int64_t index,
                                std::int64_t begin, std::int64_t count) {
  const Layout alone({{"", shape, slice, 0, true}}, {{1}});
  return alone.logical_runs(0, static_cast<int>(index), begin, count);
}

struct ByTensor {
  using Key = std::pair<std::int64_t, std::int64_t>;
  bool operator()(const PieceRow& row, const Key& key) const { return Key(row.state, row.parameter) < key; }
  bool operator()(const Key& key, const PieceRow& row) const { return key < Key(row.state, row.parameter); }
};

/// Items that a written piece and a wanted piece share. `from` counts in the written piece, `to` in the
/// wanted one.
struct Copy {
  std::int64_t from = 0, to = 0, count = 0;
};

/// Returns the shared items. Both lists ascend in the slice and in the whole tensor.
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

/// Returns the slices of a state that has an item for every `granule` elements. follow_slices is true of
/// them.
TensorSlice in_items(const Shape& shape, const TensorSlice& slice, std::int64_t granule) {
  TensorSlice items{slice.dim, slice.parts, {}, slice.axes};
  for (int i = 0; slice.parts > 1 && i <= slice.parts; ++i)
    items.begins.push_back(slice.begin(shape[0], i) * (elements(shape) / shape[0]) / granule);
  return items;
}

/// shape: of all items.
std::vector<Copy> copies_between(const Shape& shape, const TensorSlice& written, const PieceRow& row,
                                 const Wanted& wanted) {
  if (same_slices(written, wanted.slice)) {
    if (row.tensor_index != wanted.tensor_index) return {};
    // The same slices share whole ranges, in the slice's own indices.
    return overlap({{row.slice_begin, row.slice_begin, row.count}}, row.slice_begin,
                   {{wanted.slice_begin, wanted.slice_begin, wanted.count}}, wanted.slice_begin);
  }
  std::int64_t begin = row.slice_begin, end = begin + row.count;
  if (wanted.slice.parts == 1) {
    // The wanted items are one run of the tensor. A slice may have a run in each of its many rows.
    const SliceIndex index = slice_index(shape, written, static_cast<int>(row.tensor_index));
    const auto items_before = [&](std::int64_t logical) {
      return logical / index.stride * index.run +
             std::clamp<std::int64_t>(logical % index.stride - index.offset, 0, index.run);
    };
    begin = std::max(begin, items_before(wanted.slice_begin));
    end = std::min(end, items_before(wanted.slice_begin + wanted.count));
    if (begin >= end) return {};
  }
  return overlap(runs_of(shape, written, row.tensor_index, begin, end - begin), row.slice_begin,
                 runs_of(shape, wanted.slice, wanted.tensor_index, wanted.slice_begin, wanted.count),
                 wanted.slice_begin);
}

/// Least bytes that are worth waiting for a disk, if nothing is read ahead.
constexpr std::int64_t least_direct = std::int64_t{128} << 10;
constexpr std::int64_t ahead = 4 * checksum_block;  ///< bytes that the system reads while others are checked

/// Returns whether this many files may be opened twice, beside the process's other files. Reading past the
/// page cache needs a second descriptor.
bool may_open_twice(std::size_t files) {
  constexpr std::size_t others = 128;
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && 2 * files + others <= limit.rlim_cur;
}

}  // namespace

PosixFile open_shard_file(const std::filesystem::path& folder, const FileEntry& entry) {
  const std::filesystem::path path = folder / entry.name;
  PosixFile opened = read_or_damaged(path, [&] {
    if (!file_exists(path.string()))
      fail_damaged("cannot read '{}': No such file or directory, though the index names it", path.string());
    return PosixFile::open_to_read(path);
  });
  if (opened.size() != entry.bytes)
    fail_damaged("{}: is truncated or was changed: it has {} bytes, not {}", path.string(), opened.size(),
                 entry.bytes);
  return opened;
}

bool same_slices(const TensorSlice& a, const TensorSlice& b) {
  return (a.dim == b.dim && a.parts == b.parts && a.begins == b.begins) || (a.parts == 1 && b.parts == 1);
}

bool follow_slices(const Shape& shape, const TensorSlice& slice, std::int64_t granule) {
  if (granule == 1 || slice.parts == 1) return true;
  if (slice.dim != 0) return false;
  for (int i = 1; i < slice.parts; ++i)
    if (slice.begin(shape[0], i) * (elements(shape) / shape[0]) % granule != 0) return false;
  return true;
}

std::vector<ItemRun> runs_of_blocks(const PieceRow& piece, std::int64_t begin, std::int64_t count,
                                    std::int64_t bytes) {
  const std::int64_t first = std::max(begin, piece.slice_begin),
                     end = std::min(begin + count, piece.slice_begin + piece.count),
                     most = bytes / size_of(piece.type());
  std::vector<ItemRun> runs;
  for (std::int64_t at = first, next = 0; at < end; at = next) {
    // Blocks count from the begin of the piece.
    next = std::min(end, piece.slice_begin + ((at - piece.slice_begin) / most + 1) * most);
    runs.push_back({at, next - at});
  }
  return runs;
}

Reader::Reader(const std::filesystem::path& folder, bool verify, PageCache cache)
    : checkpoint_(std::make_shared<Checkpoint>()), verify_(verify) {
  checkpoint_->folder = folder;
  checkpoint_->cache = cache;
  checkpoint_->index = read_intact_index(folder);
}

std::span<const PieceRow> Reader::pieces(std::int64_t state, std::int64_t parameter) const {
  const auto& all = checkpoint_->index.pieces;
  const auto [first, last] =
      std::equal_range(all.begin(), all.end(), std::pair(state, parameter), ByTensor{});
  return {first, last};
}

std::span<const PieceRow> Reader::weights(std::int64_t parameter, WeightValues values) const {
  const bool averaged =
      values == WeightValues::averaged && !catalog().parameters[static_cast<std::size_t>(parameter)].frozen;
  const std::string name = averaged ? averages_state : weights_state;
  const auto found = std::ranges::find(catalog().states, name, &StateEntry::name);
  const char* const missing =
      averaged ? "averages of weights: its run had optimizer.ema_decay = 0; leave --ema out" : "weights";
  REQUIRE(found != catalog().states.end(), "{}: holds no {}", checkpoint_->folder.string(), missing);
  return pieces(found - catalog().states.begin(), parameter);
}

std::int64_t Reader::read(const PieceRow& piece, const Wanted& wanted, std::byte* to, DType dtype) {
  const ParameterEntry& parameter = catalog().parameters[static_cast<std::size_t>(piece.parameter)];
  const std::int64_t granule = catalog().states[static_cast<std::size_t>(piece.state)].granule;
  Shape shape = parameter.shape;
  TensorSlice written = slices_of(parameter, piece);
  Wanted items = wanted;
  if (granule > 1 && !same_slices(written, wanted.slice)) {
    written = in_items(shape, written, granule);
    items.slice = in_items(shape, wanted.slice, granule);
    shape = {ceil_div(elements(shape), granule)};
  }
  std::int64_t found = 0;
  for (const Copy& copy : copies_between(shape, written, piece, items)) {
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
    if (from >= asked && count > per_block) {
      read_ahead(row, std::min(2 * ahead, count * size), from * size);
      asked = from + ahead / size;
    }
    const std::int64_t block = from / per_block;
    const std::int64_t n = std::min(count, (block + 1) * per_block - from);
    const bool whole = from % per_block == 0 && from + n == std::min((block + 1) * per_block, row.count);
    if (as_written && (whole || !verify_)) {
      const std::int64_t begin = from * size;
      if (verify_)
        read_block(row, block, n * size, to);
      else
        checkpoint_->file(row.file).cached.read_at(to, n * size, row.byte_offset + begin);
    } else {
      convert(bytes_at(row, block, from * size, n * size), row.type(), to, to_type, n);
    }
    to += n * size_of(to_type);
    from += n;
    count -= n;
  }
}

const std::byte* Reader::bytes_at(const PieceRow& row, std::int64_t block, std::int64_t begin,
                                  std::int64_t bytes) {
  block_.resize(static_cast<std::size_t>(checksum_block));
  if (!verify_) {
    checkpoint_->file(row.file).cached.read_at(block_.data(), bytes, row.byte_offset + begin);
    return block_.data();
  }
  const std::int64_t block_begin = block * checksum_block;
  const std::int64_t checksum = row.first_checksum + block;
  if (loaded_ != checksum) {
    loaded_.reset();
    const std::int64_t length = std::min(checksum_block, row.bytes() - block_begin);
    read_block(row, block, length, block_.data());
    read_ahead(row, std::min(ahead, row.bytes() - block_begin - length), block_begin + length);
    loaded_ = checksum;
  }
  return block_.data() + (begin - block_begin);
}

void Reader::read_block(const PieceRow& row, std::int64_t block, std::int64_t bytes, std::byte* to) {
  const ShardFile& file = checkpoint_->file(row.file);
  const std::int64_t offset = row.byte_offset + block * checksum_block;
  if (!file.direct || !read_direct(file, offset, bytes, to)) try {
      file.cached.read_at(to, bytes, offset);
    } catch (const Error& e) {  // the disk gives no more of it, or it has become shorter
      throw Damaged(e.what());
    }
  const auto found = static_cast<std::int64_t>(hash_bytes(to, static_cast<std::size_t>(bytes)));
  if (found != checkpoint_->index.checksums[static_cast<std::size_t>(row.first_checksum + block)])
    fail_damaged("{}: {} bytes at offset {} do not have their checksum, the file is damaged",
                 file.cached.path().string(), bytes, offset);
}

void Reader::read_ahead(const PieceRow& row, std::int64_t bytes, std::int64_t begin) const {
  const ShardFile& file = checkpoint_->file(row.file);
  if (!file.direct) file.cached.read_ahead(bytes, row.byte_offset + begin);
}

bool Reader::read_direct(const ShardFile& file, std::int64_t offset, std::int64_t bytes, std::byte* to) {
  if (bytes < least_direct) return false;
  if (!pages_) pages_ = std::make_shared<memory::HugeBuffer>(checksum_block + 2 * direct_page);
  if (pages_->data() == nullptr) return false;
  const std::int64_t begin = offset / direct_page * direct_page;
  const std::int64_t pages = ceil_div(offset + bytes - begin, direct_page) * direct_page;
  if (file.direct->read_direct(pages_->data(), pages, begin) < offset + bytes - begin) return false;
  std::memcpy(to, pages_->data() + (offset - begin), static_cast<std::size_t>(bytes));
  return true;
}

const Reader::ShardFile& Reader::Checkpoint::file(std::int64_t number) {
  const std::lock_guard lock(mutex);
  const auto open = files.find(number);
  if (open != files.end()) return open->second;
  const FileEntry& entry = index.files[static_cast<std::size_t>(number)];
  PosixFile cached = open_shard_file(folder, entry);
  const bool passes = cache == PageCache::past && may_open_twice(index.files.size()) && !cached.is_cached();
  auto past = passes ? PosixFile::open_direct_to_read(cached) : std::nullopt;
  return files.emplace(number, ShardFile{std::move(cached), std::move(past)}).first->second;
}

}  // namespace ztrain::checkpoint
