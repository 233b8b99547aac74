#include "evaluate/choices.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"

namespace ztrain::evaluate {
namespace {

using nlohmann::json;

constexpr std::int64_t largest_file = std::int64_t{1} << 31, largest_line = 1 << 24;

/// A line of the file. Each member that is asked for must be there.
class Line {
 public:
  Line(std::string_view text, std::string where, std::int64_t vocabulary)
      : where_(std::move(where)),
        vocabulary_(vocabulary),
        object_(parse_json(text, where_, {.depth = 8, .bytes = largest_line})) {
    require(object_.is_object(), "a line is an object with context, choices and answer");
  }

  bool has(const char* key) const { return object_.contains(key); }

  const json& list(const char* key) const {
    require(has(key) && object_[key].is_array(), "{} is no list: give one entry for each choice", key);
    return object_[key];
  }

  std::size_t answer(std::size_t choices) const {
    const json* value = has("answer") ? &object_["answer"] : nullptr;
    require(value != nullptr && value->is_number_integer() && value->get<std::int64_t>() >= 0 &&
                value->get<std::int64_t>() < static_cast<std::int64_t>(choices),
            "answer is {}: give the index of the right one of {} choices, from 0",
            value ? printable(json_text(*value), most_quoted) : "missing", choices);
    return value->get<std::size_t>();
  }

  Tokens ids(const json& value, const std::string& what) const {
    require(value.is_array() && !value.empty(), "{} is no list of token ids with one id or more", what);
    Tokens tokens;
    for (const json& id : value) {
      const std::int64_t token = id.is_number_integer() ? id.get<std::int64_t>() : -1;
      if (token < 0 || token >= vocabulary_)
        require(false, "{} has the id {}, and the model's vocabulary has the ids 0 to {}", what,
                printable(json_text(id), most_quoted), vocabulary_ - 1);
      tokens.push_back(static_cast<std::int32_t>(token));
    }
    return tokens;
  }

  Tokens bytes(const json& value, const std::string& what) const {
    Tokens tokens;
    for (const char c : text(value, what)) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  std::string text(const json& value, const std::string& what) const {
    require(value.is_string() && !value.get_ref<const std::string&>().empty(), "{} is no text, or is empty",
            what);
    return value.get<std::string>();
  }

  const json& at(const char* key) const {
    require(has(key), "{} is missing", key);
    return object_[key];
  }

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    REQUIRE(holds, "{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string where_;
  std::int64_t vocabulary_;
  json object_;
};

void measure(Choice& choice, std::string_view text) {
  const std::size_t blanks = text.find_first_not_of(" \t\n");
  if (blanks != std::string_view::npos) text.remove_prefix(blanks);
  choice.bytes = std::ssize(text);
  // A character of UTF-8 begins with a byte other than 10xxxxxx.
  choice.characters =
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

Item item_of(const Line& line, std::int64_t vocabulary) {
  const bool ids = line.has("context_ids");
  line.require(ids || vocabulary == data::text_vocab,
               "context_ids is missing, and ztrain has no tokenizer for the model's vocabulary of {}: "
               "tools/prepare_choices.py adds the ids of the texts",
               vocabulary);
  Item item;
  item.context =
      ids ? line.ids(line.at("context_ids"), "context_ids") : line.bytes(line.at("context"), "context");
  const json& choices = line.list(ids ? "choices_ids" : "choices");
  line.require(choices.size() >= 2, "there are {} choices: give 2 or more", choices.size());
  const bool texts = line.has("choices");
  line.require(!texts || line.list("choices").size() == choices.size(),
               "choices has {} texts for {} lists of ids", texts ? line.list("choices").size() : 0,
               choices.size());
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const std::string what = fmt::format("{}[{}]", ids ? "choices_ids" : "choices", c);
    Choice choice{ids ? line.ids(choices[c], what) : line.bytes(choices[c], what)};
    if (texts) measure(choice, line.text(line.list("choices")[c], fmt::format("choices[{}]", c)));
    item.choices.push_back(std::move(choice));
  }
  item.answer = line.answer(choices.size());
  return item;
}

/// Tokens of the row of a choice. The last one is a target alone.
std::int64_t row_length(const Item& item, const Choice& choice) {
  return std::ssize(item.context) + std::ssize(choice.tokens) - 1;
}

}  // namespace

std::vector<Item> read_choices(const std::string& path, std::int64_t vocabulary) {
  const std::string bytes = read_file(path, largest_file, "--choices");
  const std::string_view text = utf8_text(bytes, path);
  std::vector<Item> items;
  std::int64_t number = 0;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    items.push_back(item_of(Line(line, fmt::format("{}:{}", path, number), vocabulary), vocabulary));
    items.back().line = number;
  }
  REQUIRE(!items.empty(), "--choices: '{}' has no line with choices", path);
  return items;
}

std::int64_t longest_row(const std::vector<Item>& items) {
  std::int64_t most = 0;
  for (const Item& item : items)
    for (const Choice& choice : item.choices) most = std::max(most, row_length(item, choice));
  return most;
}

std::uint64_t identity_of(const std::vector<Item>& items) {
  std::uint64_t identity = 0;
  const auto add = [&](const Tokens& tokens) {
    identity = hash_bytes(tokens.data(), tokens.size() * sizeof(tokens.front()), identity);
  };
  for (const Item& item : items) {
    add(item.context);
    for (const Choice& choice : item.choices) add(choice.tokens);
  }
  return identity;
}

ChoiceRows::ChoiceRows(Items items, std::int64_t sequence, const std::string& path)
    : items_(std::move(items)), sequence_(sequence) {
  for (std::size_t i = 0; i < items_->size(); ++i) {
    const Item& item = (*items_)[i];
    for (std::size_t c = 0; c < item.choices.size(); ++c) {
      const std::int64_t tokens = std::ssize(item.choices[c].tokens);
      REQUIRE(tokens <= sequence, "{}:{}: choice {} has {} tokens, more than --sequence {}", path, item.line,
              c, tokens, sequence);
      places_.emplace_back(i, c);
      if (row_length(item, item.choices[c]) > sequence) ++shortened_;
      counts_.trained += tokens;
      counts_.tokens += std::min(sequence, row_length(item, item.choices[c]));
    }
  }
  counts_.rows = rows();
}

void ChoiceRows::fill(std::int64_t row, const data::Row& out) const {
  const auto [i, c] = places_[static_cast<std::size_t>(row)];
  const Tokens& choice = (*items_)[i].choices[c].tokens;
  Tokens all = (*items_)[i].context;
  all.insert(all.end(), choice.begin(), choice.end());
  if (const std::int64_t more = std::ssize(all) - 1 - sequence_; more > 0)
    all.erase(all.begin(), all.begin() + more);
  const std::int64_t n = std::ssize(all) - 1;
  std::fill_n(out.at.tokens, sequence_, 0);
  std::fill_n(out.at.targets, sequence_, 0);
  std::fill_n(out.at.weights, sequence_, 0.0f);
  std::copy(all.begin(), all.end() - 1, out.at.tokens);
  std::copy(all.begin() + 1, all.end(), out.at.targets);
  std::fill(out.at.weights + n - std::ssize(choice), out.at.weights + n, 1.0f);
  data::fill_places(0, sequence_, out);
}

}  // namespace ztrain::evaluate
