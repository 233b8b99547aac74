#include "checkpoint/format/frame.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/hash.hpp"

namespace ztrain::checkpoint {

std::uint64_t checksum_of(const PosixFile& file, std::int64_t offset, std::int64_t count,
                          std::uint64_t seed) {
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(count, checksum_block)));
  for (std::int64_t done = 0; done < count; done += checksum_block) {
    const std::int64_t bytes = std::min(checksum_block, count - done);
    file.read_at(block.data(), bytes, offset + done);
    seed = hash_bytes(block.data(), static_cast<std::size_t>(bytes), seed);
  }
  return seed;
}

std::uint64_t frame_checksum(const PosixFile& file, std::span<const PieceRow> rows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;  // first byte, and that behind the last
  for (const PieceRow& row : rows) pieces.emplace_back(row.byte_offset, row.byte_offset + row.bytes());
  const std::int64_t size = file.size();
  pieces.emplace_back(size, size);
  std::ranges::sort(pieces);
  std::uint64_t sum = 0;
  std::int64_t covered = 0;
  for (const auto& [begin, end] : pieces) {
    if (begin > covered) sum = checksum_of(file, covered, begin - covered, sum);
    covered = std::max(covered, end);
  }
  return sum;
}

}  // namespace ztrain::checkpoint
