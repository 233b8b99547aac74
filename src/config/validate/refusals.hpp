#pragma once
// The combinations of keys that are refused although each key's value is legal by itself. One table has them
// all. Validation evaluates its rows, later stages throw through it, and docs/inputs.md prints it.

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/deck.hpp"

namespace ztrain::config {

/// A value, not a key's, that replaces {name} in a message, as fmt prints it.
struct Word {
  template <class Value>
  Word(std::string_view name_, Value&& value)
      : name(name_), text(fmt::format("{}", std::forward<Value>(value))) {}

  std::string_view name;
  std::string text;
};
using Words = std::vector<Word>;

struct Refusal {
  /// Keys, separated by spaces; they identify the row. {at} is the source of the first key that the deck
  /// gives, or the deck's path if it gives none.
  std::string_view keys;
  /// The message. {section.key} is the key's value. Words other than that and {at} come from `words` or from
  /// the caller of refuse().
  std::string_view message;
  /// Returns whether a deck has the combination. Null: another function or a later stage finds out, and
  /// throws.
  bool (*met)(const Deck&) = nullptr;
  /// Returns the words of a row that `met` decides; null: it needs none.
  Words (*words)(const Deck&) = nullptr;
};

/// Returns all rows, in the order in which validation evaluates them.
std::span<const Refusal> refusals();

/// Return the first of them: those of the run's length, data and model, then those of adapters and losses.
std::span<const Refusal> model_refusals();
std::span<const Refusal> tuning_refusals();

/// Throws Error with the message of the row with these keys. "at" among the words replaces the source.
[[noreturn]] void refuse(const Deck& deck, std::string_view keys, const Words& words = {});

/// Does the same for callers without a deck: `words` must have every word of the message.
[[noreturn]] void refuse(std::string_view keys, const Words& words = {});

/// Throws Error if the deck meets the row.
void check_refusal(const Refusal& row, const Deck& deck);

/// Returns the first row whose fixed words occur in `message` in their order; null if there is none.
const Refusal* refusal_of(std::string_view message);

/// Returns the section of docs/inputs.md.
std::string refusals_markdown();

}  // namespace ztrain::config
