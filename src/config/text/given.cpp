#include "config/text/given.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>

#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/deck.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/text/suggest.hpp"

namespace ztrain::config {
namespace {

constexpr std::size_t most_suggestions = 64;  ///< more than are printed; each takes a search

/// A key of the file that no field has.
struct Stray {
  std::string key;
  std::int64_t line;
};

struct Collector {
  const std::string& path;
  GivenKeys& given;
  Faults& faults;

  void fault(std::int64_t line, const std::string& text) const {
    faults.add(fmt::format("{}:{}: {}", path, line, text), line);
  }

  void unknown(const Stray& stray) const {
    const std::string text = faults.size() < most_suggestions ? suggestion(stray.key).text : "";
    fault(stray.line, fmt::format("unknown key '{}'{}", printable(stray.key, most_quoted), text));
  }

  /// Keys of tables within tables are reported by their whole names.
  void collect(const std::string& prefix, const toml::table& table, std::vector<Stray>& strays) const {
    for (const auto& [member, value] : table) {
      const std::string key = fmt::format("{}.{}", prefix, member.str());
      const auto line = static_cast<std::int64_t>(member.source().begin.line);
      if (find_field(key) != nullptr)
        given[key] = {&value, fmt::format("{}:{}", path, line), line};
      else if (value.is_table() && !value.as_table()->empty() && !suggestion(key).certain)
        collect(key, *value.as_table(), strays);
      else
        strays.push_back({key, line});
    }
  }

  /// Reports a section that does not exist. Its keys are reported one by one if their meaning is known,
  /// unless they are those of the section with the similar name.
  void unknown_section(const std::string& name, std::int64_t line, const std::vector<Stray>& strays) const {
    const std::string near = nearest(name, section_names());
    const auto few = strays | std::views::take(most_suggestions);
    const bool slip = !near.empty() && std::ranges::all_of(few, [&](const Stray& stray) {
      return find_field(near + stray.key.substr(name.size())) != nullptr;
    });
    const bool foreign =
        !slip && std::ranges::any_of(few, [](const Stray& stray) { return suggestion(stray.key).certain; });
    if (foreign) {
      for (const Stray& stray : strays) unknown(stray);
      return;
    }
    if (!near.empty()) faults.distrust(near);
    const Suggestion other = suggestion(name);
    const std::string text = !near.empty()   ? fmt::format("; did you mean '{}'?", near)
                             : other.certain ? other.text
                                             : "; `ztrain deck` lists all sections";
    fault(line, fmt::format("unknown section '{}'{}", printable(name, most_quoted), text));
  }

  void section(const std::string& name, std::int64_t line, const toml::node& node) const {
    const bool known = !section_doc(name).empty();
    if (!node.is_table() && known) {
      faults.distrust(name);
      return fault(line, fmt::format("'{}' is a section: write [{}], and its keys below", name, name));
    }
    if (!node.is_table())
      return fault(line, fmt::format("unknown key '{}' outside any section{}", printable(name, most_quoted),
                                     suggestion(name).text));
    std::vector<Stray> strays;
    collect(name, *node.as_table(), strays);
    if (!known) return unknown_section(name, line, strays);
    for (const Stray& stray : strays) unknown(stray);
  }
};

/// Returns nothing if the text is not a value of TOML.
std::optional<toml::table> as_toml(const std::string& text) {
  try {
    toml::table table = parse_toml(fmt::format("value = {}", text), "command line");
    if (table.size() == 1) return table;
  } catch (const Error&) {
    // The text is a bare word.
  }
  return std::nullopt;
}

/// A list may be given without brackets, and its words without quotes: a,b. No text is an empty list.
toml::table list_value(const std::string& text) {
  if (text.empty()) return toml::table{{"value", toml::array()}};
  if (auto table = as_toml(text);
      table && (table->get("value")->is_array() || table->get("value")->is_string()))
    return *table;
  if (auto table = as_toml(fmt::format("[{}]", text));
      table && text.find_first_not_of(" ,") != std::string::npos)
    return *table;
  toml::array words;
  for (const auto& word : std::views::split(text, ','))
    words.push_back(std::string(word.begin(), word.end()));
  return words.size() > 1 ? toml::table{{"value", words}} : toml::table{{"value", text}};
}

toml::table override_value(const Field& field, const std::string& text) {
  const std::string type = type_name(field);
  if (type.starts_with("list") || type == "two numbers") return list_value(text);
  const bool words = field.access.index() == 0 || type == "dtype";
  if (auto table = as_toml(text); table && (!words || table->get("value")->is_string())) return *table;
  return toml::table{{"value", text}};
}

/// Returns what a word without "=" lacks. Its value may be the next word.
std::string no_override(const std::string& word, const std::string& key) {
  if (find_field(key) != nullptr) return fmt::format("'{}' has no value: write --{}=VALUE", word, key);
  if (const Suggestion meant = suggestion(key); word.starts_with('-') && meant.certain)
    return fmt::format("unknown key '{}'{}", printable(key, most_quoted), meant.text);
  return fmt::format("'{}' is not an override; write --section.key=value", printable(word, most_quoted));
}

}  // namespace

void collect_keys(const toml::table& file, const std::string& path, GivenKeys& given, Faults& faults) {
  const Collector collector{path, given, faults};
  for (const auto& [section, node] : file)
    collector.section(std::string(section.str()), static_cast<std::int64_t>(section.source().begin.line),
                      node);
}

void collect_overrides(const std::vector<std::string>& overrides, std::deque<toml::table>& tables,
                       GivenKeys& given, Faults& faults) {
  bool value_expected = false;
  for (const auto& text : overrides) {
    const std::size_t begin = text.starts_with("--") ? 2 : text.starts_with('-') ? 1 : 0;
    const std::size_t equals = text.find('=');
    if (std::exchange(value_expected, false) && begin == 0 && equals == std::string::npos) continue;
    const std::string key = text.substr(begin, equals == std::string::npos ? equals : equals - begin);
    const Field* field = find_field(key);
    if (equals == std::string::npos) {
      faults.add("command line: " + no_override(text, key));
      value_expected = begin > 0;
    } else if (key.empty()) {
      faults.add(fmt::format("command line: '{}' names no key: write --section.key=value",
                             printable(text, most_quoted)));
    } else if (field == nullptr) {
      faults.add(
          fmt::format("command line: unknown key '{}'{}", printable(key, most_quoted), suggestion(key).text));
    } else if (begin == 1) {
      faults.add(fmt::format("command line: '{}' is not an override; write -{}", printable(text, most_quoted),
                             printable(text, most_quoted)));
    } else {
      tables.push_back(override_value(*field, text.substr(equals + 1)));
      given[key] = {tables.back().get("value"), command_line};
    }
  }
}

}  // namespace ztrain::config
