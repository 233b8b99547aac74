#pragma once
// The combinations of keys that are refused although each key's value is legal by itself: one table, which
// validation walks, of which docs/inputs.md prints a section, and through which later stages refuse as well.

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// What a message says besides the values of keys: a name between its braces, and what fmt makes of a value.
struct Word {
  template <class Value>
  Word(std::string_view name_, Value&& value)
      : name(name_), text(fmt::format("{}", std::forward<Value>(value))) {}

  std::string_view name;
  std::string text;
};
using Words = std::vector<Word>;

struct Refusal {
  /// Names the row. Keys are separated by spaces; the first that the deck gives is the place that is blamed.
  std::string_view keys;
  /// What is told. {section.key} is the key's value, {at} the place; other words are given with the row or by
  /// who throws.
  std::string_view message;
  /// Whether a deck has the combination; null: another function or a later stage finds out, and throws.
  bool (*met)(const Deck&) = nullptr;
  /// The words of a row that `met` decides; null: it needs none.
  Words (*words)(const Deck&) = nullptr;
};

/// All rows, in the order in which validation walks them.
std::span<const Refusal> refusals();

/// Throws Error with the message of the row with these keys. "at" among the words replaces the blamed place.
[[noreturn]] void refuse(const Deck& deck, std::string_view keys, const Words& words = {});

/// The same for those who have no deck: all words of the message are given.
[[noreturn]] void refuse(std::string_view keys, const Words& words = {});

/// Throws Error if the deck meets the row.
void check_refusal(const Refusal& row, const Deck& deck);

/// The row whose message this is, or contains; null: none.
const Refusal* refusal_of(std::string_view message);

/// The section of docs/inputs.md.
std::string refusals_markdown();

}  // namespace ztrain::config
