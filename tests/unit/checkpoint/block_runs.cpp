// How what is wanted of a written piece is dealt to threads: all of it, and each block to one of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/reader.hpp"

namespace ztrain::checkpoint::block_runs_test {
namespace {

PieceRow piece_of(DType type, std::int64_t begin, std::int64_t count) {
  PieceRow row;
  row.dtype = static_cast<std::int64_t>(type);
  row.slice_begin = begin;
  row.count = count;
  return row;
}

/// Blocks of the piece in which these items of its slice lie.
std::pair<std::int64_t, std::int64_t> blocks_of(const PieceRow& row, const ItemRun& run) {
  const std::int64_t per_block = checksum_block / size_of(row.type());
  return {(run.begin - row.slice_begin) / per_block,
          (run.begin + run.count - 1 - row.slice_begin) / per_block};
}

TEST(BlockRuns, HaveAllThatIsWantedAndNoBlockTwice) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::int64_t block = checksum_block / size_of(type), bytes = 4 * checksum_block;
    const PieceRow row = piece_of(type, 300'007, 11 * block + 5);
    const std::int64_t end = row.slice_begin + row.count;
    for (const std::int64_t begin : {std::int64_t{0}, row.slice_begin, row.slice_begin + 17,
                                     row.slice_begin + 4 * block, row.slice_begin + 5 * block + 1})
      for (const std::int64_t last : {begin + 1, begin + 3 * block, end - 3, end, end + block}) {
        const auto runs = runs_of_blocks(row, begin, last - begin, bytes);
        std::int64_t next = std::max(begin, row.slice_begin), before = -1;
        for (const ItemRun& run : runs) {
          EXPECT_EQ(run.begin, next);
          EXPECT_GT(run.count, 0);
          EXPECT_LE(run.count * size_of(type), bytes);
          const auto [first_block, last_block] = blocks_of(row, run);
          EXPECT_GT(first_block, before) << "a block is read twice";
          before = last_block;
          next = run.begin + run.count;
        }
        EXPECT_EQ(next, std::max(std::min(last, end), std::max(begin, row.slice_begin)));
      }
  }
}

TEST(BlockRuns, AreNoneOfWhatAnotherPieceHas) {
  const PieceRow row = piece_of(DType::f32, 1000, 50);
  EXPECT_TRUE(runs_of_blocks(row, 0, 1000, checksum_block).empty());
  EXPECT_TRUE(runs_of_blocks(row, 1050, 10, checksum_block).empty());
  EXPECT_EQ(runs_of_blocks(row, 999, 2, checksum_block), (std::vector<ItemRun>{{1000, 1}}));
}

}  // namespace
}  // namespace ztrain::checkpoint::block_runs_test
