#pragma once
// Layouts of block-sparse attention. The modes and their names are those of DeepSpeed's sparse_attention,
// with "attention": "unidirectional" and one layout for all heads.

#include <cstdint>
#include <string_view>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// Returns what BlockLayout views, for sequences of so many tokens: nothing if the file was not read. A file
/// that has more rows gives the first ones.
std::vector<std::int64_t> block_layout(const SparseAttention& sparse, std::int64_t sequence);

/// Returns the same for a sequence of up to longest_sequence tokens, whose last block may be cut off. Throws
/// Error if the file was not read.
std::vector<std::int64_t> layout_of_cache(const SparseAttention& sparse, std::int64_t tokens);

/// Returns the number of tokens of the longest sequence for which there are blocks.
std::int64_t longest_sequence(const SparseAttention& sparse);

/// Returns the bits of the first `blocks` rows of a file, or of all if it has fewer.
std::vector<std::int64_t> first_rows(const std::vector<std::int64_t>& rows, std::int64_t blocks);

/// Reads the rows of bits of a layout: a line for each block of queries, with a 0 or a 1 for each block of
/// keys; spaces between them are ignored. Throws Error that names the file and the line if the numbers are
/// not a square, lower triangle whose diagonal is all ones.
std::vector<std::int64_t> layout_of_text(std::string_view text, const std::string& path);

/// Reads the file of mode "file" into `rows`. Throws Error as layout_of_text does, or if it cannot be read.
void read_layout(SparseAttention& sparse);

/// The most rows of a layout. Each attention of a Program holds its bits, 2 MiB at most.
inline constexpr std::int64_t most_blocks = 4096;

/// Returns the number of blocks of a layout by the words of its rows.
std::int64_t blocks_of(const std::vector<std::int64_t>& rows);

}  // namespace ztrain::config
