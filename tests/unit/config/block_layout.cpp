// Layouts of block-sparse attention: what each mode draws, and what a file may hold.
#include "config/block_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/block_layout.hpp"
#include "model/attention_span.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::block_layout_test {
namespace {

/// The rows of a layout as text: # for a block that is there.
std::string picture(const std::vector<std::int64_t>& layout) {
  const BlockLayout view = BlockLayout::of(layout);
  std::string text;
  for (std::int64_t row = 0; row < view.blocks(); ++row, text += ' ')
    for (std::int64_t column = 0; column <= row; ++column) text += view.bit(row, column) ? '#' : '.';
  return text;
}

std::string drawn(const std::string& keys, int blocks) {
  const Deck d = deck_of("[sparse_attention]\n" + keys, {"--data.sequence=" + std::to_string(64 * blocks)});
  return picture(block_layout(d.sparse_attention, d.data.sequence));
}

TEST(BlockLayouts, AreThoseOfTheirModes) {
  EXPECT_EQ(drawn("mode = 'fixed'\nnum_local_blocks = 2", 7), "# ## .## .### .#.## .#.### .#.#.## ");
  EXPECT_EQ(drawn("mode = 'fixed'\nnum_local_blocks = 3\nnum_global_blocks = 2", 5), "# ## ### .### .#### ");
  EXPECT_EQ(drawn("mode = 'fixed'\nnum_local_blocks = 3\nnum_global_blocks = 0", 5), "# ## ### ...# ...## ");
  EXPECT_EQ(drawn("mode = 'variable'\nnum_local_blocks = 2", 5), "# ## #.# #.## #...# ");
  EXPECT_EQ(drawn("mode = 'bslongformer'\nnum_sliding_window_blocks = 4", 5), "# ## ### #### #.### ");
  EXPECT_EQ(drawn("mode = 'bigbird'\nnum_sliding_window_blocks = 1\nnum_global_blocks = 2", 5),
            "# ## ### ##.# ##..# ");
}

TEST(BlockLayouts, HaveAsManyRandomBlocksAsAsked) {
  const std::string keys =
      "mode = 'bigbird'\nnum_sliding_window_blocks = 1\nnum_global_blocks = 0\nnum_random_blocks = ";
  const std::string one = drawn(keys + "40", 70), other = drawn(keys + "40\nseed = 1", 70);
  EXPECT_NE(one, other);
  EXPECT_EQ(one, drawn(keys + "40", 70));
  std::size_t row = 0, varied = 0;
  for (std::size_t begin = 0; begin < one.size(); begin += ++row + 1) {
    const std::string blocks = one.substr(begin, row + 1);
    const auto present = static_cast<std::size_t>(std::ranges::count(blocks, '#'));
    EXPECT_TRUE(present == std::min<std::size_t>(40, row + 1) || present == 41) << blocks;
    EXPECT_EQ(blocks.back(), '#');
    varied += blocks != other.substr(begin, row + 1) ? 1 : 0;
  }
  EXPECT_EQ(row, 70u);
  EXPECT_GT(varied, 25u);
}

TEST(BlockLayouts, CountTheKeysOfATokenByBlocksThatAreThere) {
  const std::vector<std::int64_t> layout{64, 256, 0b1, 0b11, 0b100, 0b1001};
  EXPECT_EQ(BlockLayout::of(layout).mean_keys(), (4 * 0.5 + 2) * 64 / 4);
  const Deck d =
      deck_of("[sparse_attention]\nmode = 'fixed'\nnum_local_blocks = 100", {"--data.sequence=6400"});
  const std::vector<std::int64_t> all = block_layout(d.sparse_attention, 6400);
  EXPECT_EQ(BlockLayout::of(all).mean_keys(), 3200);
}

TEST(BlockLayouts, CountTheKeysThatAWindowLeaves) {
  const std::vector<std::int64_t> layout{64, 256, 0b1, 0b11, 0b101, 0b1110};
  const BlockLayout view = BlockLayout::of(layout);
  for (const std::int64_t window : {1, 64, 65, 100, 129, 192, 255, 256, 300}) {
    std::int64_t keys = 0;
    for (std::int64_t query = 0; query < 256; ++query)
      for (std::int64_t key = std::max<std::int64_t>(0, query - window + 1); key <= query; ++key)
        keys += view.has(query, key) ? 1 : 0;
    // Without a window, a block of the diagonal counts as half of a square.
    const double mean = static_cast<double>(keys) / 256 - (window < 256 ? 0 : 0.5);
    EXPECT_EQ(view.mean_keys(window), mean) << window;
    EXPECT_EQ(model::attention_span(256, Attention{.window = window, .layout = layout}), mean);
  }
}

TEST(BlockLayouts, OfFilesAreSquareAndOfPast) {
  std::string text;
  for (std::size_t i = 0; i < 70; ++i) text += std::string(i, '0') + "1" + std::string(69 - i, '0') + "\n";
  EXPECT_EQ(blocks_of(layout_of_text(text, "f")), 70);
  EXPECT_EQ(first_rows(layout_of_text(text, "f"), 3), (std::vector<std::int64_t>{0b1, 0b10, 0b100}));
  EXPECT_EQ(first_rows({}, 3), std::vector<std::int64_t>{});
  EXPECT_EQ(layout_of_text("1 0\r\n1\t1", "f"), (std::vector<std::int64_t>{0b1, 0b11}));
  const auto refusal = [](const std::string& rows) { return error_of([&] { layout_of_text(rows, "f"); }); };
  EXPECT_EQ(refusal(""), "f: the layout of blocks is empty");
  EXPECT_EQ(refusal("10\n12\n"), "f:2: a layout of blocks has only the numbers 0 and 1");
  EXPECT_EQ(refusal("10\n\n11\n"), "f:2: the line is empty; a layout has a row of blocks in each");
  EXPECT_EQ(refusal("10\n1\n"), "f:2: the row has 1 blocks, and the file has 2 rows; a layout is square");
  EXPECT_EQ(refusal("11\n11\n"),
            "f:1: the last 1 must be number 1 of the row: a block of queries sees its own block and no "
            "later one");
  EXPECT_EQ(refusal("10\n10\n").substr(0, 27), "f:2: the last 1 must be num");
}

TEST(BlockLayouts, ThatDoNotFitTheDeckAreRefused) {
  const auto refusal = [](const std::string& keys) {
    return deck_error("[sparse_attention]\n" + keys, {"--data.sequence=256"});
  };
  EXPECT_EQ(refusal("mode = 'file'"),
            "input.toml:8: sparse_attention.mode = \"file\" needs the name of a file in "
            "sparse_attention.layout");
  EXPECT_NE(refusal("layout = 'f'")
                .find("is read only if sparse_attention.mode is \"file\", and that is "
                      "\"none\""),
            std::string::npos);
  EXPECT_NE(refusal("mode = 'file'\nlayout = 'absent'").find("sparse_attention.layout"), std::string::npos);
  EXPECT_EQ(
      refusal("mode = 'fixed'\nblock = 192"),
      "input.toml:9: sparse_attention.block = 192 does not divide data.sequence = 256; rows of a layout "
      "begin anew with each sequence, which has whole blocks therefore");
  EXPECT_NE(refusal("mode = 'fixed'\nnum_global_blocks = 5").find("which has sparse_attention.num_local_"),
            std::string::npos);
  EXPECT_NE(deck_error("[sparse_attention]\nmode = 'fixed'", {"--data.sequence=262208"})
                .find("has 4097 blocks of sparse_attention.block = 64"),
            std::string::npos);
}

TEST(BlockLayouts, OfFilesThatAreElsewhereAreAllBlocks) {
  const Deck d = parse_deck(base + "[sparse_attention]\nmode = 'file'\nlayout = 'rows.txt'\n",
                            "/decks/input.toml", {}, Files::elsewhere);
  EXPECT_TRUE(block_layout(d.sparse_attention, d.data.sequence).empty());
  EXPECT_EQ(
      notes_on_variables(d),
      std::vector<std::string>{"sparse_attention.layout = \"/decks/rows.txt\": the file is not here, so "
                               "all blocks count"});
}

}  // namespace
}  // namespace ztrain::config::block_layout_test
