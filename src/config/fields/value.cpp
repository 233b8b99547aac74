#include "config/fields/value.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>

#include <fmt/ranges.h>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"

namespace ztrain::config {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// An assignment under way, with everything that its messages need.
struct Assignment {
  const Field& field;
  const toml::node& value;
  std::string_view where;

  [[noreturn]] void refuse(const std::string& nearest_legal = "") const {
    fail("{}: {} = {} is not legal: expected {}{}", where, field.key, source_text(value), legal_text(field),
         nearest_legal.empty() ? "" : fmt::format("; nearest legal: {}", nearest_legal));
  }

  bool whole() const { return std::holds_alternative<std::int64_t& (*)(Deck&)>(field.access); }

  bool in_range(double x) const {
    const Legal& l = field.legal;
    if (l.minus_one && x == -1) return true;
    return (l.open_least ? x > l.least : x >= l.least) && (l.open_most ? x < l.most : x <= l.most);
  }

  /// Kernels see a number that is not whole as fp32, in which it must be legal too.
  void require_legal(double x) const {
    const Legal& l = field.legal;
    if (!std::isfinite(x)) refuse();
    REQUIRE(whole() || fits_fp32(x),
            "{}: {} = {} is not legal: it is computed with in fp32, which holds 0 and magnitudes from {:.1e} "
            "to {:.1e}; expected {}",
            where, field.key, source_text(value), least_fp32, most_fp32, legal_text(field));
    if (!in_range(x)) {
      const bool open = x <= l.least ? l.open_least : l.open_most;
      refuse(open ? "" : fmt::format("{}", std::clamp(x, l.least, l.most)));
    }
    if (l.whole_from_one && x > 1 && x != std::floor(x)) refuse(fmt::format("{}", std::floor(x)));
    if (whole()) {
      const auto number = static_cast<std::int64_t>(x);
      if (number % l.multiple != 0) refuse(fmt::format("{}", number - number % l.multiple));
      return;
    }
    REQUIRE(in_range(static_cast<float>(x)),
            "{}: {} = {} is not legal: fp32, in which it is computed with, rounds it to {}; expected {}",
            where, field.key, source_text(value), static_cast<float>(x), legal_text(field));
  }

  /// Returns the meaning of a word among spellings, or null. Case does not matter.
  static const std::string* meant_by(const std::string& word, const Spellings& spellings) {
    for (const auto& [spelling, meaning] : spellings)
      if (lower(word) == lower(spelling)) return &meaning;
    return nullptr;
  }

  /// Returns a string as it is, and a boolean or a whole number as it is written.
  std::string word(const toml::node& node) const {
    if (node.is_string()) return *node.value<std::string>();
    if (!node.is_boolean() && !node.is_integer()) refuse();
    return source_text(node);
  }

  /// Returns the text in quotes if it is a number that would be legal without them.
  std::string without_quotes(const std::string& text) const {
    double x = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    return error == std::errc() && end == text.data() + text.size() && in_range(x) ? text : "";
  }

  double number(const toml::node& node) const {
    double x = 0;
    if (node.is_number()) {
      const auto exact = node.value_exact<std::int64_t>();  // value<double> gives none if it would round
      x = exact ? static_cast<double>(*exact) : *node.value<double>();
    } else {
      const std::string text = word(node);
      const std::string* meaning = meant_by(text, field.legal.understood);
      if (meaning == nullptr) refuse(without_quotes(text));
      x = std::stod(*meaning);
    }
    x += 0.0;  // minus zero becomes zero
    require_legal(x);
    return x;
  }

  std::int64_t integer() const {
    const double x = number(value);  // 1e9 is a float in TOML, and a usual way to write a count
    if (x != std::floor(x)) refuse(fmt::format("{:.0f}", x));
    const auto result = static_cast<std::int64_t>(x);
    const auto exact = value.value_exact<std::int64_t>();
    if (exact && *exact != result) refuse(fmt::to_string(result));  // a double cannot hold the value
    return result;
  }

  bool boolean() const {
    if (value.is_boolean()) return *value.value<bool>();
    const std::string text = lower(word(value));
    if (text == "true" || text == "false") return text == "true";
    if (text == "1" || text == "yes" || text == "on") refuse("true");
    refuse(text == "0" || text == "no" || text == "off" ? "false" : "");
  }

  /// Returns whether the word is a whole number that is legal besides the choices. Refuses one out of range.
  bool legal_count(const std::string& word) const {
    std::int64_t count = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, count);
    if (error != std::errc() || stop != end) return false;
    if (count < field.legal.or_from) refuse(fmt::to_string(field.legal.or_from));
    if (static_cast<double>(count) > field.legal.most) refuse(fmt::format("{}", field.legal.most));
    return true;
  }

  std::string text(const toml::node& node) const {
    const Legal& l = field.legal;
    if (l.choices.empty()) {
      if (!node.is_string()) refuse();
      require_plain(field, *node.value<std::string>(), where);
      return *node.value<std::string>();
    }
    const std::string given = word(node);
    if (l.or_from > 0 && legal_count(given)) return given;
    if (!l.or_ending.empty() && given.ends_with(l.or_ending)) {
      require_plain(field, given, where);
      return given;
    }
    for (const auto& choice : l.choices)
      if (lower(given) == lower(choice)) return choice;
    if (const std::string* choice = meant_by(given, l.aliases)) return *choice;
    if (const std::string* choice = meant_by(given, l.understood)) return *choice;
    const std::string* close = meant_by(given, l.hints);
    refuse(close ? *close : nearest_spelling(given));
  }

  std::string nearest_spelling(const std::string& word) const {
    std::vector<std::string> spellings = field.legal.choices, lowered;
    for (const auto& [spelling, choice] : field.legal.aliases) spellings.push_back(spelling);
    for (const auto& s : spellings) lowered.push_back(lower(s));
    const std::string best = nearest(lower(word), lowered);
    for (std::size_t i = 0; i < spellings.size(); ++i) {
      const bool begins = !word.empty() && lowered[i].starts_with(lower(word));
      if (best.empty() ? begins : lowered[i] == best) return spellings[i];
    }
    return "";
  }

  std::vector<std::string> texts() const {
    if (value.is_string()) return {text(value)};
    if (!value.is_array()) refuse();
    std::vector<std::string> all;
    for (const auto& element : *value.as_array()) all.push_back(text(element));
    return all;
  }

  std::vector<double> numbers() const {
    if (!value.is_array()) refuse();
    std::vector<double> all;
    for (const auto& element : *value.as_array()) all.push_back(number(element));
    return all;
  }

  std::array<double, 2> pair() const {
    if (!value.is_array() || value.as_array()->size() != 2) refuse(std::string(field.standard));
    const auto& both = *value.as_array();
    return {number(*both.get(0)), number(*both.get(1))};
  }
};

/// Stores a value by the type of the member that the access reaches.
struct Store {
  const Assignment& from;
  Deck& deck;

  void operator()(std::string& (*member)(Deck&)) const { member(deck) = from.text(from.value); }
  void operator()(std::int64_t& (*member)(Deck&)) const { member(deck) = from.integer(); }
  void operator()(double& (*member)(Deck&)) const { member(deck) = from.number(from.value); }
  void operator()(DType& (*member)(Deck&)) const { member(deck) = dtype_from(from.text(from.value)); }
  void operator()(std::vector<std::string>& (*member)(Deck&)) const { member(deck) = from.texts(); }
  void operator()(std::vector<double>& (*member)(Deck&)) const { member(deck) = from.numbers(); }
  void operator()(std::vector<ParameterGroup>& (*member)(Deck&)) const {
    member(deck) = groups_from(from.field, from.value, from.where);
  }
  void operator()(bool& (*member)(Deck&)) const { member(deck) = from.boolean(); }
  void operator()(Pair (*member)(Deck&)) const {
    const auto both = from.pair();
    member(deck).first = both[0];
    member(deck).second = both[1];
  }
};

struct Render {
  Deck& deck;

  std::string operator()(std::string& (*member)(Deck&)) const { return toml_string(member(deck)); }
  std::string operator()(std::int64_t& (*member)(Deck&)) const { return fmt::to_string(member(deck)); }
  std::string operator()(double& (*member)(Deck&)) const { return fmt::format("{}", member(deck)); }
  std::string operator()(bool& (*member)(Deck&)) const { return member(deck) ? "true" : "false"; }
  std::string operator()(DType& (*member)(Deck&)) const { return toml_string(name_of(member(deck))); }
  std::string operator()(std::vector<std::string>& (*member)(Deck&)) const {
    std::string list;
    for (const auto& text : member(deck))
      list += fmt::format("{}{}", list.empty() ? "" : ", ", toml_string(text));
    return fmt::format("[{}]", list);
  }
  std::string operator()(std::vector<double>& (*member)(Deck&)) const {
    return fmt::format("[{}]", fmt::join(member(deck), ", "));
  }
  std::string operator()(std::vector<ParameterGroup>& (*member)(Deck&)) const {
    return groups_text(member(deck));
  }
  std::string operator()(Pair (*member)(Deck&)) const {
    const Pair pair = member(deck);
    return fmt::format("[{}, {}]", pair.first, pair.second);
  }
};

std::string whole_text(const toml::node& value) {
  if (value.is_string()) return toml_string(*value.value<std::string>());
  if (value.is_floating_point()) return fmt::format("{}", *value.value<double>());
  std::string inner;
  const auto add = [&](const std::string& text) { inner += (inner.empty() ? "" : ", ") + text; };
  if (const toml::array* list = value.as_array()) {
    for (const auto& element : *list) add(whole_text(element));
    return "[" + inner + "]";
  }
  if (const toml::table* table = value.as_table()) {
    for (const auto& [key, member] : *table) add(fmt::format("{} = {}", key.str(), whole_text(member)));
    return "{" + inner + "}";
  }
  std::ostringstream out;
  value.visit([&](auto&& v) { out << v; });
  return out.str();
}

}  // namespace

void assign(const Field& field, const toml::node& value, Deck& deck, std::string_view where) {
  const Assignment assignment{field, value, where};
  std::visit(Store{assignment, deck}, field.access);
}

void assign(const Field& field, std::string_view toml_value, Deck& deck, std::string_view where) {
  const toml::table table = parse_toml(fmt::format("value = {}", toml_value), std::string(where));
  assign(field, *table.get("value"), deck, where);
}

std::string render(const Field& field, const Deck& deck) {
  // Accesses are written once, for mutable decks; rendering only reads through them.
  return std::visit(Render{const_cast<Deck&>(deck)}, field.access);
}

void require_plain(const Field& field, std::string_view text, std::string_view where) {
  REQUIRE(is_plain_text(text),
          "{}: {} = \"{}\" is not legal: expected UTF-8 text without control characters, which the deck's "
          "copies and checkpoints can hold; rename the file or folder",
          where, field.key, printable(text, most_quoted));
}

std::string source_text(const toml::node& value) {
  return printable(whole_text(value), most_quoted);
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace ztrain::config
