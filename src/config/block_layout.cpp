#include "config/block_layout.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/block_layout.hpp"
#include "base/error.hpp"
#include "base/philox.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

/// The bits of a lower triangle of blocks.
class Bits {
 public:
  explicit Bits(std::int64_t blocks)
      : blocks_(blocks), words_(static_cast<std::size_t>(blocks * BlockLayout::words_of(blocks))) {}

  std::int64_t blocks() const { return blocks_; }
  /// Sets a bit unless it lies above the diagonal.
  void set(std::int64_t row, std::int64_t column) {
    if (column > row) return;
    auto& word = words_[static_cast<std::size_t>(row * BlockLayout::words_of(blocks_) + column / 64)];
    word |= static_cast<std::int64_t>(std::uint64_t{1} << (column % 64));
  }
  /// Sets the bits of columns [begin, end) of a row.
  void set(std::int64_t row, std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = std::max<std::int64_t>(0, begin); column < std::min(end, row + 1); ++column)
      set(row, column);
  }
  std::vector<std::int64_t> take() && { return std::move(words_); }

 private:
  std::int64_t blocks_;
  std::vector<std::int64_t> words_;
};

/// Each row sees the blocks of its window of `local` blocks.
void add_windows(Bits& bits, std::int64_t local) {
  for (std::int64_t row = 0; row < bits.blocks(); ++row) bits.set(row, row / local * local, row + 1);
}

/// The rows after a window see its last blocks. A last window that is not full has no rows after it.
void add_ends_of_windows(Bits& bits, std::int64_t local, std::int64_t global) {
  for (std::int64_t end = local; end < bits.blocks(); end += local)
    for (std::int64_t row = end; row < bits.blocks(); ++row) bits.set(row, end - global, end);
}

/// Each row sees half of a window of `sliding` blocks before it.
void add_sliding(Bits& bits, std::int64_t sliding) {
  for (std::int64_t row = 0; row < bits.blocks(); ++row) bits.set(row, row - sliding / 2, row + 1);
}

void add_first(Bits& bits, std::int64_t global) {
  for (std::int64_t row = 0; row < bits.blocks(); ++row) bits.set(row, 0, global);
}

/// Each row sees `count` different blocks that are drawn among those up to its own.
void add_random(Bits& bits, std::int64_t count, std::int64_t seed) {
  for (std::int64_t row = 0; row < bits.blocks(); ++row) {
    std::vector<std::int64_t> left(static_cast<std::size_t>(row + 1));
    std::iota(left.begin(), left.end(), 0);
    for (std::int64_t drawn = 0; drawn < std::min(count, row + 1); ++drawn) {
      const auto place = philox(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(row),
                                static_cast<std::uint64_t>(drawn))[0] %
                         left.size();
      bits.set(row, left[place]);
      left[place] = left.back();
      left.pop_back();
    }
  }
}

std::vector<std::int64_t> rows_of(const SparseAttention& sparse, std::int64_t blocks) {
  Bits bits(blocks);
  if (sparse.mode == "fixed" || sparse.mode == "variable") {
    add_windows(bits, sparse.num_local_blocks);
  } else {
    add_sliding(bits, sparse.num_sliding_window_blocks);
  }
  if (sparse.mode == "fixed")
    add_ends_of_windows(bits, sparse.num_local_blocks, sparse.num_global_blocks);
  else
    add_first(bits, sparse.num_global_blocks);
  if (sparse.mode == "variable" || sparse.mode == "bigbird")
    add_random(bits, sparse.num_random_blocks, sparse.seed);
  return std::move(bits).take();
}

}  // namespace

std::vector<std::int64_t> block_layout(const SparseAttention& sparse, std::int64_t sequence) {
  if (sparse.mode == "file" && sparse.rows.empty()) return {};
  std::vector<std::int64_t> layout{sparse.block, sequence};
  const std::int64_t blocks = sequence / sparse.block;
  const auto rows = sparse.mode == "file" ? first_rows(sparse.rows, blocks) : rows_of(sparse, blocks);
  layout.insert(layout.end(), rows.begin(), rows.end());
  return layout;
}

std::vector<std::int64_t> layout_of_cache(const SparseAttention& sparse, std::int64_t tokens) {
  ASSERT(tokens <= longest_sequence(sparse), "a cache of {} tokens is larger than the layout of its blocks",
         tokens);
  return block_layout(sparse, (tokens + sparse.block - 1) / sparse.block * sparse.block);
}

std::int64_t longest_sequence(const SparseAttention& sparse) {
  return sparse.block * (sparse.mode == "file" ? blocks_of(sparse.rows) : most_blocks);
}

std::vector<std::int64_t> first_rows(const std::vector<std::int64_t>& rows, std::int64_t blocks) {
  const std::int64_t all = blocks_of(rows), count = std::min(blocks, all);
  const std::int64_t from = BlockLayout::words_of(all), to = BlockLayout::words_of(count);
  std::vector<std::int64_t> first;
  for (std::int64_t row = 0; row < count; ++row)
    first.insert(first.end(), rows.begin() + row * from, rows.begin() + row * from + to);
  return first;
}

std::int64_t blocks_of(const std::vector<std::int64_t>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  std::int64_t blocks = 0;
  while (blocks * BlockLayout::words_of(blocks) < count) ++blocks;
  return blocks;
}

std::vector<std::int64_t> layout_of_text(std::string_view text, const std::string& path) {
  std::vector<std::string> rows;
  for (std::size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string row;
    for (const char c : text.substr(begin, end - begin)) {
      REQUIRE(c == '0' || c == '1' || c == ' ' || c == '\r' || c == '\t',
              "{}:{}: a layout of blocks has only the numbers 0 and 1", path, line);
      if (c == '0' || c == '1') row += c;
    }
    REQUIRE(!row.empty(), "{}:{}: the line is empty; a layout has a row of blocks in each", path, line);
    rows.push_back(row);
    begin = end + 1;
  }
  const auto blocks = std::ssize(rows);
  REQUIRE(blocks > 0, "{}: the layout of blocks is empty", path);
  Bits bits(blocks);
  for (std::int64_t row = 0; row < blocks; ++row) {
    const std::string& numbers = rows[static_cast<std::size_t>(row)];
    REQUIRE(std::ssize(numbers) == blocks,
            "{}:{}: the row has {} blocks, and the file has {} rows; a layout is square", path, row + 1,
            numbers.size(), blocks);
    const std::size_t last = numbers.rfind('1');
    REQUIRE(last == static_cast<std::size_t>(row),
            "{}:{}: the last 1 must be number {} of the row: a block of queries sees its own block and no "
            "later one",
            path, row + 1, row + 1);
    for (std::int64_t column = 0; column <= row; ++column)
      if (numbers[static_cast<std::size_t>(column)] == '1') bits.set(row, column);
  }
  return std::move(bits).take();
}

void read_layout(SparseAttention& sparse) {
  constexpr std::int64_t most = 1 << 28;
  if (sparse.mode != "file" || sparse.layout.empty()) return;
  sparse.rows = layout_of_text(read_file(sparse.layout, most, "sparse_attention.layout"), sparse.layout);
}

}  // namespace ztrain::config
