#include "translate/read.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "config/fields/value.hpp"
#include "files/file.hpp"

namespace ztrain::translate {
namespace {

constexpr std::int64_t most_bytes = 1 << 20;
constexpr std::size_t most_settings = 10'000;  ///< aliases of YAML multiply what a short file says
constexpr int most_depth = 12;

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool number_of(std::string_view word, double& x) {
  if (word.starts_with('+')) word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), x);
  return error == std::errc() && end == word.data() + word.size() && std::isfinite(x);
}

Value list_of(std::vector<Value> elements) {
  Value list{.kind = Value::Kind::list, .word = {}, .toml = {}};
  std::vector<std::string> parts;
  for (const Value& element : elements) {
    if (element.kind == Value::Kind::nothing) continue;
    list.words.push_back(element.word);
    parts.push_back(element.toml);
  }
  list.word = fmt::format("[{}]", fmt::join(list.words, ", "));
  list.toml = fmt::format("[{}]", fmt::join(parts, ", "));
  return list;
}

/// Collects the settings of one file.
class Collector {
 public:
  explicit Collector(const std::string& file) : file_(file) {}

  void add(const std::string& name, Value value, int line) {
    REQUIRE(settings_.size() < most_settings, "{}: more than {} settings are no configuration", file_,
            most_settings);
    REQUIRE(is_plain_text(name), "{}:{}: the name '{}' is no text", file_, line,
            printable(name, most_quoted));
    settings_.push_back({name, std::move(value), fmt::format("{}:{}", file_, line)});
  }

  void add(const YAML::Node& node, const std::string& name, int line, int depth) {
    REQUIRE(depth < most_depth, "{}:{}: {} is nested deeper than any configuration", file_, line, name);
    if (node.IsMap() && node.size() > 0) return members(node, name, depth);
    if (node.IsMap()) return add(name, {.kind = Value::Kind::nothing, .word = "{}", .toml = {}}, line);
    if (!node.IsSequence()) return add(name, value_of(node), line);
    const auto scalar_node = [](const YAML::Node& n) { return n.IsScalar() || n.IsNull(); };
    if (std::all_of(node.begin(), node.end(), scalar_node)) {
      std::vector<Value> elements;
      for (const YAML::Node& element : node) elements.push_back(value_of(element));
      return add(name, list_of(std::move(elements)), line);
    }
    for (const YAML::Node& element : node) add(element, name, line_of(element), depth + 1);
  }

  void add(const toml::node& node, const std::string& name) {
    const int line = static_cast<int>(node.source().begin.line);
    if (const toml::table* table = node.as_table()) {
      for (const auto& [key, member] : *table)
        add(member, name.empty() ? std::string(key.str()) : fmt::format("{}.{}", name, key.str()));
      return;
    }
    const toml::array* array = node.as_array();
    if (array == nullptr) return add(name, value_of(node), line);
    if (std::ranges::any_of(*array, [](const toml::node& n) { return n.is_table() || n.is_array(); })) {
      for (const toml::node& element : *array) add(element, name);
      return;
    }
    std::vector<Value> elements;
    for (const toml::node& element : *array) elements.push_back(value_of(element));
    add(name, list_of(std::move(elements)), line);
  }

  static int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

  /// Tables of TOML come in the order of their names; lines put them into the file's.
  std::vector<Setting> sorted_by_line() {
    const auto line = [](const Setting& s) { return std::stoi(s.where.substr(s.where.rfind(':') + 1)); };
    std::ranges::stable_sort(settings_, {}, line);
    return std::move(settings_);
  }
  std::vector<Setting> take() { return std::move(settings_); }

 private:
  void members(const YAML::Node& map, const std::string& name, int depth) {
    for (const auto& member : map) {
      const int line = line_of(member.first);
      REQUIRE(member.first.IsScalar(), "{}:{}: a name is expected here", file_, line);
      const std::string& key = member.first.Scalar();
      add(member.second, name.empty() ? key : fmt::format("{}.{}", name, key), line, depth + 1);
    }
  }

  static Value value_of(const YAML::Node& node) {
    return node.IsScalar() ? scalar(node.Scalar(), node.Tag() == "!") : scalar("null");
  }
  static Value value_of(const toml::node& node) {
    if (node.is_string()) return scalar(*node.value<std::string>(), true);
    return scalar(config::source_text(node));
  }

  std::string file_;
  std::vector<Setting> settings_;
};

std::vector<Setting> read_yaml(const std::string& text, const std::string& name) try {
  std::vector<YAML::Node> documents = YAML::LoadAll(text);
  std::erase_if(documents, [](const YAML::Node& node) { return node.IsNull(); });
  REQUIRE(documents.size() <= 1, "{}: holds {} documents (---), and a configuration is one: give each a file",
          name, documents.size());
  REQUIRE(!documents.empty() && documents[0].IsMap(),
          "{}: a configuration is a mapping of names to values, and this is none", name);
  Collector all(name);
  all.add(documents[0], "", 1, 0);
  return all.take();
} catch (const YAML::DeepRecursion& e) {
  fail("{}:{}: is nested deeper than any configuration", name, e.mark.line + 1);
} catch (const YAML::Exception& e) {
  fail("{}:{}: this is not valid YAML or JSON: {}", name, e.mark.line + 1, printable(e.msg, most_quoted));
}

}  // namespace

bool Value::on() const {
  return is("true") || number() > 0;
}

double Value::number() const {
  double x = 0;
  return kind != Kind::list && number_of(word, x) ? x : 0;
}

Value scalar(const std::string& word, bool quoted) {
  using enum Value::Kind;
  double x = 0;
  Value v{.kind = text, .word = printable(word), .toml = config::toml_string(word)};
  if (!quoted) {
    std::string lower = word;
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (one_of(lower, {"", "~", "null"})) return {.kind = nothing, .word = "null", .toml = {}};
    if (one_of(lower, {"true", "yes", "on"})) v = {.kind = boolean, .word = "true", .toml = "true"};
    if (one_of(lower, {"false", "no", "off"})) v = {.kind = boolean, .word = "false", .toml = "false"};
    if (number_of(word, x)) v = {.kind = number, .word = word, .toml = fmt::format("{}", x)};
  }
  v.words = {v.word};
  return v;
}

std::vector<Setting> read_settings(const std::string& path) {
  const std::string bytes = read_file(path, most_bytes, "the configuration");
  const std::string text(utf8_text(bytes, path)), name = std::filesystem::path(path).filename();
  if (!path.ends_with(".toml")) return read_yaml(text, name);
  Collector all(name);
  all.add(config::parse_toml(text, name), "");
  return all.sorted_by_line();
}

}  // namespace ztrain::translate
