#include "config/value.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace ztrain::config {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// One assignment under way: everything that its messages need.
struct Assignment {
  const Field& field;
  const toml::node& value;
  std::string_view where;

  [[noreturn]] void refuse(const std::string& nearest_legal = "") const {
    fail("{}: {} = {} is not legal: expected {}{}", where, field.key, source_text(value), legal_text(field),
         nearest_legal.empty() ? "" : fmt::format("; nearest legal: {}", nearest_legal));
  }

  bool legal(double x) const {
    const Legal& l = field.legal;
    if (!std::isfinite(x)) return false;
    if (l.minus_one && x == -1) return true;
    return (l.open_least ? x > l.least : x >= l.least) && (l.open_most ? x < l.most : x <= l.most);
  }

  double number(const toml::node& node) const {
    if (!node.is_number()) refuse();
    const double x = *node.value<double>();
    if (legal(x)) return x;
    const Legal& l = field.legal;
    const bool open = x <= l.least ? l.open_least : l.open_most;
    refuse(open || !std::isfinite(x) ? "" : fmt::format("{}", std::clamp(x, l.least, l.most)));
  }

  std::int64_t integer() const {
    if (const auto exact = value.value_exact<std::int64_t>()) {
      number(value);
      return *exact;
    }
    const double x = number(value);  // 1e9 is a float to TOML, and a usual way to write a count
    if (std::abs(x) > 0x1p62) refuse();
    if (x != std::floor(x)) refuse(fmt::format("{:.0f}", x));
    return static_cast<std::int64_t>(x);
  }

  /// Is the word a whole number that is legal besides the choices? Refuses one that is too small.
  bool legal_count(const std::string& word) const {
    std::int64_t count = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, count);
    if (error != std::errc() || stop != end) return false;
    if (count < field.legal.or_from) refuse(fmt::to_string(field.legal.or_from));
    return true;
  }

  std::string text(const toml::node& node) const {
    const Legal& l = field.legal;
    const bool bare = l.or_from > 0 && (node.is_boolean() || node.is_integer());
    if (!node.is_string() && !bare) refuse();
    const std::string word = bare ? source_text(node) : *node.value<std::string>();
    if (l.choices.empty()) return word;
    if (l.or_from > 0 && legal_count(word)) return word;
    const bool any_case = !l.aliases.empty();
    std::vector<std::string> spellings;
    for (const auto& choice : l.choices) {
      if (word == choice || (any_case && lower(word) == lower(choice))) return choice;
      spellings.push_back(choice);
    }
    for (const auto& [spelling, choice] : l.aliases) {
      if (lower(word) == lower(spelling)) return choice;
      spellings.push_back(spelling);
    }
    refuse(nearest_spelling(word, spellings));
  }

  static std::string nearest_spelling(const std::string& word, const std::vector<std::string>& spellings) {
    std::vector<std::string> lowered;
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
    if (!value.is_array() || value.as_array()->size() != 2) refuse();
    const auto& both = *value.as_array();
    return {number(*both.get(0)), number(*both.get(1))};
  }
};

/// Stores by the type of the member that the access reaches.
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
  void operator()(bool& (*member)(Deck&)) const {
    if (!from.value.is_boolean()) from.refuse();
    member(deck) = *from.value.value<bool>();
  }
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

}  // namespace

void assign(const Field& field, const toml::node& value, Deck& deck, std::string_view where) {
  const Assignment assignment{field, value, where};
  std::visit(Store{assignment, deck}, field.access);
}

void assign(const Field& field, std::string_view toml_value, Deck& deck, std::string_view where) {
  const toml::table table = toml::parse(fmt::format("value = {}", toml_value));
  assign(field, *table.get("value"), deck, where);
}

std::string render(const Field& field, const Deck& deck) {
  // Accesses are written once, for mutable decks; rendering only reads through them.
  return std::visit(Render{const_cast<Deck&>(deck)}, field.access);
}

std::string source_text(const toml::node& value) {
  if (value.is_string()) return toml_string(*value.value<std::string>());
  if (value.is_floating_point()) return fmt::format("{}", *value.value<double>());
  std::string inner;
  const auto add = [&](const std::string& text) { inner += (inner.empty() ? "" : ", ") + text; };
  if (const toml::array* list = value.as_array()) {
    for (const auto& element : *list) add(source_text(element));
    return "[" + inner + "]";
  }
  if (const toml::table* table = value.as_table()) {
    for (const auto& [key, member] : *table) add(fmt::format("{} = {}", key.str(), source_text(member)));
    return "{" + inner + "}";
  }
  std::ostringstream out;
  value.visit([&](auto&& v) { out << v; });
  return out.str();
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
