#include "config/load.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/presets.hpp"
#include "config/starting_point.hpp"
#include "config/validate.hpp"
#include "config/value.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;

/// A key as somebody gave it.
struct Given {
  const toml::node* value;
  std::string source;
};
using GivenKeys = std::map<std::string, Given>;

std::string at_line(const std::string& path, const toml::source_region& region) {
  return fmt::format("{}:{}", path, region.begin.line);
}

/// ", did you mean ...?" for a key of another section with that member name, or else for one of the same
/// section whose name ends with it, or else for a similar key.
std::string suggestion(const std::string& key) {
  const std::string section = key.substr(0, key.find('.')), member = key.substr(key.rfind('.') + 1);
  std::string best, ending;
  for (const auto& field : fields()) {
    if (field.member() == member) best = field.key;
    if (ending.empty() && field.section() == section && field.member().ends_with("_" + member))
      ending = field.key;
  }
  if (best.empty()) best = ending.empty() ? nearest(key, field_keys()) : ending;
  return best.empty() ? "; `ztrain deck` lists all keys" : fmt::format("; did you mean '{}'?", best);
}

std::string section_suggestion(const std::string& section) {
  const std::string best = nearest(section, section_names());
  return best.empty() ? "; `ztrain deck` lists all sections" : fmt::format("; did you mean '{}'?", best);
}

/// Sections that other trainers have and this version does not.
constexpr std::array<std::string_view, 1> later_sections{"offload"};

void require_supported(const std::string& section, const std::string& where) {
  REQUIRE(std::find(later_sections.begin(), later_sections.end(), section) == later_sections.end(),
          "{}: {} is not supported by this version yet; leave section [{}] and its keys out", where, section,
          section);
}

/// Collects the keys of a parsed deck; throws for unknown ones.
void collect(const toml::table& file, const std::string& path, GivenKeys& given) {
  for (const auto& [section, node] : file) {
    const std::string name(section.str());
    const std::string where = at_line(path, section.source());
    require_supported(name, where);
    const bool known = !section_doc(name).empty();
    if (!node.is_table()) {
      REQUIRE(!known, "{}: '{}' is a section: write [{}], and its keys below", where, name, name);
      fail("{}: unknown key '{}' outside any section{}", where, name, suggestion(name));
    }
    REQUIRE(known, "{}: unknown section '{}'{}", where, name, section_suggestion(name));
    for (const auto& [member, value] : *node.as_table()) {
      const std::string key = fmt::format("{}.{}", name, member.str());
      const std::string line = at_line(path, member.source());
      REQUIRE(find_field(key) != nullptr, "{}: unknown key '{}'{}", line, key, suggestion(key));
      given[key] = {&value, line};
    }
  }
}

toml::table override_value(const Field& field, const std::string& text) {
  const bool words = field.access.index() == 0 || type_name(field) == "dtype";
  try {
    toml::table table = toml::parse(fmt::format("value = {}", text));
    if (table.size() == 1 && (!words || table.get("value")->is_string())) return table;
  } catch (const toml::parse_error&) {
    // Not TOML: a bare word.
  }
  return toml::table{{"value", text}};
}

/// Adds the overrides to the given keys. `tables` owns the parsed values, at fixed addresses.
void collect_overrides(const std::vector<std::string>& overrides, std::deque<toml::table>& tables,
                       GivenKeys& given) {
  for (const auto& text : overrides) {
    const std::size_t begin = text.rfind("--", 0) == 0 ? 2 : 0;
    const std::size_t equals = text.find('=');
    REQUIRE(equals != std::string::npos, "command line: '{}' is not an override; write --section.key=value",
            text);
    const std::string key = text.substr(begin, equals - begin);
    require_supported(key.substr(0, key.find('.')), "command line");
    const Field* field = find_field(key);
    REQUIRE(field != nullptr, "command line: unknown key '{}'{}", key, suggestion(key));
    tables.push_back(override_value(*field, text.substr(equals + 1)));
    given[key] = {tables.back().get("value"), "command line"};
  }
}

/// A deck under construction, with the source of each key.
struct Draft {
  Deck deck;
  std::map<std::string, std::string> source;

  void set(const Field& field, const Given& given) {
    assign(field, *given.value, deck, given.source);
    auto& from = source[field.key];
    from = from.rfind("preset", 0) == 0 ? fmt::format("{} (over {})", given.source, from) : given.source;
  }
  void set(const Settings& settings, const std::string& from) {
    for (const auto& [key, value] : settings) {
      assign(*find_field(key), value, deck, from);
      source[key] = from;
    }
  }
};

struct PresetKey {
  const char* key;
  Settings (*settings)(std::string_view name);
};
constexpr std::array preset_keys{PresetKey{"model.preset", model_preset},
                                 PresetKey{"precision.preset", precision_preset},
                                 PresetKey{"cluster.preset", cluster_preset}};

/// Defaults are already those of the presets that are not given.
void apply_presets(Draft& draft, const GivenKeys& given) {
  for (const auto& [key, settings] : preset_keys) {
    const auto it = given.find(key);
    if (it == given.end()) continue;
    const Field& field = *find_field(key);
    draft.set(field, it->second);
    const std::string& name = std::get<std::string& (*)(Deck&)>(field.access)(draft.deck);
    draft.set(settings(name), fmt::format("preset {}", name));
  }
}

/// Replaces every ${VAR}. One that is not set is an error, or stays where the files are elsewhere.
std::string expand(const Field& field, const std::string& text, const std::string& where, Files files) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t open; (open = text.find("${", done)) != std::string::npos;) {
    const std::size_t close = text.find('}', open);
    REQUIRE(close != std::string::npos, "{}: {} = {}: '${{' without '}}'", where, field.key,
            toml_string(text));
    const std::string variable = text.substr(open + 2, close - open - 2);
    const char* value = std::getenv(variable.c_str());
    REQUIRE(value != nullptr || files == Files::elsewhere,
            "{}: {} = {}: the environment variable {} is not set", where, field.key, toml_string(text),
            variable);
    result += text.substr(done, open - done) + (value ? value : text.substr(open, close + 1 - open));
    done = close + 1;
  }
  return result + text.substr(done);
}

void resolve_paths(Draft& draft, Files files) {
  const fs::path folder = fs::absolute(draft.deck.path).parent_path();
  for (const auto& field : fields()) {
    if (field.path == PathKind::none) continue;
    const auto resolve = [&](std::string& text) {
      text = expand(field, text, draft.source[field.key], files);
      const bool word = field.key == "checkpoint.resume" && (text == "auto" || text == "none");
      if (field.path == PathKind::from_deck && !text.empty() && !word)
        text = (folder / text).lexically_normal();
    };
    if (const auto* list = std::get_if<std::vector<std::string>& (*)(Deck&)>(&field.access)) {
      for (auto& text : (*list)(draft.deck)) resolve(text);
    } else {
      resolve(std::get<std::string& (*)(Deck&)>(field.access)(draft.deck));
    }
  }
  if (draft.deck.run.output.empty())
    draft.deck.run.output = "runs/" + fs::path(draft.deck.path).stem().string();
}

/// A run that starts from a checkpoint with adapters goes on with the same ones.
void require_same_adapters(const Draft& draft, const StartingPoint& point) {
  if (!point.adapters) return;
  const Lora &saved = *point.adapters, &given = draft.deck.lora;
  REQUIRE(
      given.rank > 0,
      "model.from: '{}' holds adapters (lora.rank = {}), and this run has none: start from the folder that "
      "`ztrain export {} --to FOLDER` makes, in which they are merged, or set lora.rank",
      draft.deck.model.from, saved.rank, draft.deck.model.from);
  REQUIRE(given.rank == saved.rank && given.alpha == saved.alpha,
          "model.from: '{}' holds adapters with lora.rank = {} and lora.alpha = {}, and this run's have {} "
          "and {}: they must be the same; or start from the folder that `ztrain export` makes, in which they "
          "are merged",
          draft.deck.model.from, saved.rank, saved.alpha, given.rank, given.alpha);
}

/// The model that model.from names. A key or preset that is given besides must say the same.
void apply_model_folder(Draft& draft, Files files) {
  const std::string& folder = draft.deck.model.from;
  if (folder.empty()) return;
  if (files == Files::elsewhere && !fs::exists(folder)) {
    REQUIRE(draft.deck.model.preset != "custom" || draft.source["model.hidden_size"] != "default",
            "{}: '{}' is not here, and nothing else says what the model is: give model.preset or its dims "
            "besides",
            draft.source["model.from"], folder);
    return;
  }
  const StartingPoint point = starting_point(folder);
  const std::string& file = point.file;
  draft.deck.model.origin = point.origin;
  draft.deck.model.origin_positions = point.positions;
  require_same_adapters(draft, point);
  for (const auto& [key, value] : point.settings) {
    const Field& field = *find_field(key);
    const std::string before = render(field, draft.deck);
    // 0 says that others say it.
    const bool derived = before == "0" && (key == "model.head_dim" || key == "model.num_key_value_heads" ||
                                           key == "model.vocab_size");
    const bool given = draft.source[key] != "default" && !derived;
    assign(field, value, draft.deck, file);
    const std::string now = render(field, draft.deck);
    const bool preset = draft.source[key].rfind("preset", 0) == 0;
    REQUIRE(!given || before == now, "{}: {} = {} contradicts {}, which says {}; {}", draft.source[key], key,
            before, file, now,
            preset ? "leave model.preset out, or name the folder of that model" : "leave the key out");
    if (!given) draft.source[key] = file;
  }
}

void require_given(const GivenKeys& given, const std::string& path) {
  for (const auto& field : fields()) {
    REQUIRE(!field.standard.empty() || given.count(field.key) != 0,
            "{}: {} is missing; it has no default: give {}", path, field.key, legal_text(field));
  }
}

Deck build(const GivenKeys& given, const std::string& path, Files files) {
  Draft draft;
  draft.deck.path = path;
  require_given(given, path);
  for (const auto& field : fields()) {
    if (!field.standard.empty()) assign(field, field.standard, draft.deck, "default");
    draft.source[field.key] = "default";
  }
  apply_presets(draft, given);
  for (const auto& field : fields()) {
    const auto it = given.find(field.key);
    if (it != given.end() && field.member() != "preset") draft.set(field, it->second);
  }
  resolve_paths(draft, files);
  apply_model_folder(draft, files);
  for (const auto& field : fields())
    draft.deck.origins.push_back({field.key, "", draft.source[field.key], true});
  validate(draft.deck);
  for (std::size_t i = 0; i < fields().size(); ++i)
    draft.deck.origins[i].value = render(fields()[i], draft.deck);
  return draft.deck;
}

}  // namespace

Deck parse_deck(std::string_view text, const std::string& path, const std::vector<std::string>& overrides,
                Files files) {
  toml::table file;
  try {
    file = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail("{}: not valid TOML: {}", at_line(path, error.source()), error.description());
  }
  GivenKeys given;
  std::deque<toml::table> tables;
  collect(file, path, given);
  collect_overrides(overrides, tables, given);
  Deck deck = build(given, path, files);
  deck.overrides = overrides;
  return deck;
}

Deck load_deck(const std::string& path, const std::vector<std::string>& overrides, Files files) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good() && fs::is_regular_file(path),
          "cannot read the deck '{}': no such file, or no permission", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_deck(text, path, overrides, files);
}

}  // namespace ztrain::config
