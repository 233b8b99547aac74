#pragma once
// Multiple choice: a context, and texts of which one goes on with it. Reads them from JSON lines, and makes a
// row of each choice behind its context, in which the tokens of the choice alone are to be predicted.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/rows/row_source.hpp"

namespace ztrain::evaluate {

using Tokens = std::vector<std::int32_t>;

/// Lengths of a choice's text without the blanks before it; 0: the text is not known.
struct Choice {
  Tokens tokens;
  std::int64_t characters = 0, bytes = 0;
};

struct Item {
  std::int64_t line = 0;  ///< in its file, from 1
  Tokens context;
  std::vector<Choice> choices;  ///< 2 or more
  std::size_t answer = 0;       ///< index of the right one
};

using Items = std::shared_ptr<const std::vector<Item>>;

/// Reads a file with an object in each line; empty lines are passed over. The members of an object are
///   {"context": "...", "choices": ["...", "..."], "answer": 0}
/// for a model of bytes. For other vocabularies "context_ids" and "choices_ids" have the tokens, and
/// "choices", if it is there, is the text of which the lengths are taken. Each member beside these is passed
/// over. Throws Error that names file and line for what is malformed, for ids outside the vocabulary, for an
/// answer that is no index, and for empty contexts and choices.
std::vector<Item> read_choices(const std::string& path, std::int64_t vocabulary);

/// Returns the tokens of the longest row.
std::int64_t longest_row(const std::vector<Item>& items);

/// Returns a hash of all tokens.
std::uint64_t identity_of(const std::vector<Item>& items);

/// A row for each choice of each item, in their order. A row that is longer than `sequence` loses the first
/// tokens of its context.
class ChoiceRows : public data::RowSource {
 public:
  /// Throws Error naming file and line of a choice that no row holds.
  ChoiceRows(Items items, std::int64_t sequence, const std::string& path);

  std::int64_t sequence() const override { return sequence_; }
  std::int64_t rows() const override { return std::ssize(places_); }
  void fill(std::int64_t row, const data::Row& out) const override;
  data::RowCounts counts() const override { return counts_; }
  std::int64_t shortened() const { return shortened_; }  ///< rows that lose tokens

 private:
  Items items_;
  std::int64_t sequence_, shortened_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>>
      places_;  ///< by row: indices of the item and of the choice
  data::RowCounts counts_;
};

}  // namespace ztrain::evaluate
