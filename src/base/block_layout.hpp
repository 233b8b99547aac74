#pragma once
// Which blocks of keys each block of queries attends to: block-sparse attention (R. Child, S. Gray, A.
// Radford and I. Sutskever, "Generating long sequences with sparse transformers", 2019).

#include <bit>
#include <cstdint>
#include <span>

namespace ztrain {

/// A view of a lower-triangular matrix of bits whose diagonal is set, which every sequence of the tokens and
/// every head shares. A query sees the keys before it whose block is present in the row of its own block. The
/// view is one pointer, because functors that are launched carry it.
struct BlockLayout {
  /// Tokens of a block, tokens of a sequence, and then the rows of bits, each of words_of(blocks()) words.
  /// Not owned. If it is null, every block is present.
  const std::int64_t* words = nullptr;

  static constexpr std::int64_t head = 2;  ///< Words before the rows.
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
    const auto word = static_cast<std::uint64_t>(words[head + row * words_of(blocks()) + column / 64]);
    return (word >> (column % 64) & 1) != 0;
  }
  /// Returns whether the block of a key is present for a query of the same sequence. Both are indices among
  /// the tokens of a micro-batch.
  constexpr bool has(std::int64_t query, std::int64_t key) const {
    return !is_on() || bit(query % sequence() / block(), key % sequence() / block());
  }
  /// Returns the mean number of keys that a token attends to. The diagonal blocks, which are always present,
  /// are half full.
  constexpr double mean_keys() const {
    std::int64_t present = 0;
    for (std::int64_t word = head; word < head + blocks() * words_of(blocks()); ++word)
      present += std::popcount(static_cast<std::uint64_t>(words[word]));
    const auto rows = static_cast<double>(blocks());
    return (static_cast<double>(present) - rows / 2) * static_cast<double>(block()) / rows;
  }

  bool operator==(const BlockLayout&) const = default;
};

}  // namespace ztrain
