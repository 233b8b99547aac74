#include "config/validate/refusals.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/validate/validate.hpp"

namespace ztrain::config {
namespace {

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> all;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    all.push_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return all;
}

/// Calls literal(text) and word(name) for the parts of a message, in their order.
template <class Literal, class Word>
void walk(std::string_view message, Literal&& literal, Word&& word) {
  while (!message.empty()) {
    const std::size_t begin = std::min(message.find('{'), message.size());
    if (begin > 0) literal(message.substr(0, begin));
    message.remove_prefix(begin);
    if (message.empty()) return;
    const std::size_t end = message.find('}');
    word(message.substr(1, end - 1));
    message.remove_prefix(end + 1);
  }
}

/// Returns the source of the first of the keys that the deck gives; the deck's path if it gives none.
std::string blamed(const Deck& deck, std::string_view keys) {
  for (const std::string_view key : split(keys))
    if (is_explicit(deck, key)) return source_of(deck, key);
  return deck.path;
}

/// Returns the message with its words filled in. `deck` gives keys' values, or is null.
std::string filled(const Refusal& row, const Deck* deck, const Words& words) {
  std::string text;
  const auto value_of = [&](std::string_view name) {
    const auto given = std::ranges::find(words, name, &Word::name);
    if (given != words.end()) return given->text;
    ASSERT(deck != nullptr, "the message of '{}' has no {}", row.keys, name);
    if (name == "at") return blamed(*deck, row.keys);
    const Field* field = find_field(name);
    ASSERT(field != nullptr, "the message of '{}' has no {}", row.keys, name);
    return render(*field, *deck);
  };
  walk(
      row.message, [&](std::string_view literal) { text += literal; },
      [&](std::string_view name) { text += value_of(name); });
  return text;
}

const Refusal& row_of(std::string_view keys) {
  const auto rows = refusals();
  const auto row = std::ranges::find(rows, keys, &Refusal::keys);
  ASSERT(row != rows.end(), "'{}' is no row of the table of refusals", keys);
  return *row;
}

/// Returns whether the text has the message's own words in their order.
bool has_words_of(std::string_view text, const Refusal& row) {
  bool all = true;
  const auto take = [&](std::string_view literal) {
    const std::size_t found = text.find(literal);
    all = all && found != std::string_view::npos;
    if (all) text.remove_prefix(found + literal.size());
  };
  walk(row.message, take, [](std::string_view) {});
  return all;
}

/// Returns whether a word after `text` may be empty. Such a word brings the space before it along.
bool is_optional_behind(std::string_view text) {
  if (text.empty()) return false;
  const char last = text.back();
  return last == '.' || (last >= 'a' && last <= 'z');
}

}  // namespace

void refuse(const Deck& deck, std::string_view keys, const Words& words) {
  throw Error(filled(row_of(keys), &deck, words));
}

void refuse(std::string_view keys, const Words& words) {
  throw Error(filled(row_of(keys), nullptr, words));
}

void check_refusal(const Refusal& row, const Deck& deck) {
  if (row.met == nullptr || !row.met(deck)) return;
  refuse(deck, row.keys, row.words == nullptr ? Words{} : row.words(deck));
}

const Refusal* refusal_of(std::string_view message) {
  const auto rows = refusals();
  const auto row = std::ranges::find_if(rows, [&](const Refusal& r) { return has_words_of(message, r); });
  return row == rows.end() ? nullptr : &*row;
}

std::string refusals_markdown() {
  std::string text =
      "\n## Combinations that are refused\n\nEach of these keys is legal by itself. `ztrain check DECK "
      "--ranks N` reports all of them except that of device.cuda_graphs with device.communicator; a run "
      "reports each before its first step. \"...\" stands for the deck's values. What depends on files, on a "
      "checkpoint or on the "
      "machine is not listed.\n\n| keys | what is told |\n| --- | --- |\n";
  for (const Refusal& row : refusals()) {
    std::string keys, message;
    for (const std::string_view key : split(row.keys))
      keys += (keys.empty() ? "`" : ", `") + std::string(key) + "`";
    walk(
        row.message.substr(row.message.starts_with("{at}: ") ? 6 : 0),
        [&](std::string_view literal) { message += literal; },
        [&](std::string_view) { message += is_optional_behind(message) ? "" : "..."; });
    text += "| " + keys + " | " + markdown_cell(message) + " |\n";
  }
  return text;
}

}  // namespace ztrain::config
