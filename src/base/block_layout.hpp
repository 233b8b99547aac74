#pragma once
// Which blocks of keys each block of queries attends to: block-sparse attention (R. Child, S. Gray, A.
// Radford and I. Sutskever, "Generating long sequences with sparse transformers", 2019).

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace ztrain {

/// A view of a lower-triangular matrix of bits whose diagonal is set. Every sequence of the tokens and every
/// head share it. A query sees its own key, and those earlier keys whose block is present in the row of the
/// query's block. The view is one pointer, because functors that are launched carry it.
struct BlockLayout {
  /// Tokens of a block, tokens of a sequence, and then the rows of bits, each of words_of(blocks()) words.
  /// Not owned. If it is null, every block is present.
  const std::int64_t* words = nullptr;

  static constexpr std::int64_t header_words = 2;  ///< Words before the rows.
  static constexpr std::int64_t words_of(std::int64_t blocks) { return (blocks + 63) / 64; }

  /// Returns the layout that the words hold: none if they are empty.
  static constexpr BlockLayout of(std::span<const std::int64_t> words) {
    return {words.empty() ? nullptr : words.data()};
  }
  constexpr bool is_on() const { return words != nullptr; }
  constexpr std::int64_t block() const { return words[0]; }
  constexpr std::int64_t sequence() const { return words[1]; }  ///< A multiple of block().
  constexpr std::int64_t blocks() const { return sequence() / block(); }

  /// Returns whether the bit of a row and a column is set.
  constexpr bool bit(std::int64_t row, std::int64_t column) const {
    const auto word =
        static_cast<std::uint64_t>(words[header_words + row * words_of(blocks()) + column / 64]);
    return (word >> (column % 64) & 1) != 0;
  }
  /// Returns whether the block of a key is present for a query of the same sequence. Both are indices among
  /// the tokens of a micro-batch.
  constexpr bool has(std::int64_t query, std::int64_t key) const {
    return !is_on() || bit(query % sequence() / block(), key % sequence() / block());
  }
  /// Returns the number of keys of the blocks that are present in a row.
  constexpr std::int64_t keys_of_row(std::int64_t row) const {
    const std::int64_t count = words_of(blocks());
    std::int64_t present = 0;
    for (std::int64_t i = 0; i < count; ++i)
      present += std::popcount(static_cast<std::uint64_t>(words[header_words + row * count + i]));
    return present * block();
  }
  /// Returns the mean number of keys that a token attends to, of which a window (0: none) keeps the last
  /// ones. Without a window, the diagonal blocks, which are always present, count as half full.
  constexpr double mean_keys(std::int64_t window = 0) const {
    double present = 0;
    if (window > 0 && window < sequence()) {
      for (std::int64_t away = 0; away < blocks() && away <= window / block() + 1; ++away)
        present += static_cast<double>(rows_with(away)) * static_cast<double>(pairs(away, window));
      return present / static_cast<double>(sequence());
    }
    for (std::int64_t row = 0; row < blocks(); ++row) present += static_cast<double>(keys_of_row(row));
    return present / static_cast<double>(blocks()) - static_cast<double>(block()) / 2;
  }

  bool operator==(const BlockLayout&) const = default;

 private:
  /// Returns the number of rows that have the block so many blocks before their own.
  constexpr std::int64_t rows_with(std::int64_t away) const {
    std::int64_t count = 0;
    for (std::int64_t row = away, end = blocks(); row < end; ++row) count += bit(row, row - away) ? 1 : 0;
    return count;
  }
  /// Returns the number of pairs of a query and a key of two such blocks that a window has.
  constexpr std::int64_t pairs(std::int64_t away, std::int64_t window) const {
    std::int64_t count = 0;
    for (std::int64_t query = 0; query < block(); ++query) {
      const std::int64_t begin = std::max<std::int64_t>(0, away * block() + query - window + 1);
      count += std::max<std::int64_t>(0, (away == 0 ? query + 1 : block()) - begin);
    }
    return count;
  }
};

}  // namespace ztrain
