#include "config/text/load.hpp"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/preference_loss.hpp"
#include "config/block_layout.hpp"
#include "config/fields/presets.hpp"
#include "config/fields/value.hpp"
#include "config/hf/own_head.hpp"
#include "config/hf/reward_model.hpp"
#include "config/hf/starting_point.hpp"
#include "config/text/given.hpp"
#include "config/validate/faults.hpp"
#include "config/validate/validate_rules.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;

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
constexpr std::int64_t most_deck_bytes = 1 << 20;  ///< usual decks have thousands

constexpr std::array preset_keys{PresetKey{"model.preset", model_preset},
                                 PresetKey{"precision.preset", precision_preset},
                                 PresetKey{"cluster.preset", cluster_preset}};

/// Applies the presets that are given. Defaults are already those of the default presets.
void apply_presets(Draft& draft, const GivenKeys& given, Faults& faults) {
  for (const auto& [key, settings] : preset_keys) {
    const auto it = given.find(key);
    if (it == given.end()) continue;
    const Field& field = *find_field(key);
    const auto apply = [&] {
      draft.set(field, it->second);
      const std::string& name = std::get<std::string& (*)(Deck&)>(field.access)(draft.deck);
      draft.set(settings(name), fmt::format("preset {}", name));
    };
    if (!faults.attempt(apply, it->second.line)) faults.distrust(field.section());
  }
}

/// Replaces every ${VAR}. A variable that is not set is an error, or stays if the files are elsewhere.
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

/// Returns the texts of a field that is a text or a list of them.
std::vector<std::string*> texts_of(const Field& field, Deck& deck) {
  if (const auto* one = std::get_if<std::string& (*)(Deck&)>(&field.access)) return {&(*one)(deck)};
  std::vector<std::string*> all;
  if (const auto* list = std::get_if<std::vector<std::string>& (*)(Deck&)>(&field.access))
    for (std::string& text : (*list)(deck)) all.push_back(&text);
  return all;
}

/// Returns whether a path, or the pattern of several, names anything.
bool is_there(const std::string& path) {
  ::glob_t found{};
  std::error_code unknown;
  const bool any = fs::exists(path, unknown) || ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
  ::globfree(&found);
  return any;
}

/// Returns a whole path of a file that a run reads. Paths in a deck count from the deck's folder, because
/// both are moved together. Paths typed beside it count from the working folder, as a shell completes them.
/// Throws Error for a path that is there only if it is counted from the other folder.
std::string whole_path(const Draft& draft, const Field& field, const std::string& text, Files files) {
  const std::string& source = draft.source.at(field.key);
  const bool typed = source == command_line;
  const fs::path of_deck = fs::path(draft.deck.path).parent_path();
  const auto from = [&](const fs::path& folder) {
    return fs::absolute(folder / text).lexically_normal().string();
  };
  const std::string path = from(typed ? "" : of_deck), other = from(typed ? of_deck : "");
  // Files of a job elsewhere need not be here, but a model's folder is looked at wherever a deck is read.
  const bool looked_at = files == Files::here || field.key == "model.from";
  REQUIRE(!looked_at || path == other || is_there(path) || !is_there(other),
          "{}: {}: '{}' does not exist, and '{}' does: paths {}: write {}", source, field.key, path, other,
          typed ? "on the command line are relative to the working folder, not to the deck"
                : "in a deck are relative to the deck's folder, not to the working folder",
          typed ? (of_deck / text).lexically_normal().string()
                : fs::path(other).lexically_proximate(fs::absolute(of_deck)).string());
  return path;
}

/// Refuses a name that is not plain, because every later message would repeat it.
void require_name(const Field& field, const std::string& text, const std::string& where) {
  std::error_code error;
  if (field.path == PathKind::written) static_cast<void>(fs::symlink_status(text, error));
  REQUIRE(error != std::errc::filename_too_long, "{}: {} = \"{}\": {}", where, field.key,
          printable(text, most_quoted), error.message());
}

void require_working_folder() {
  std::error_code gone;
  static_cast<void>(fs::current_path(gone));
  REQUIRE(!gone, "the folder in which ztrain was started is not there any more: start it in another one");
}

void resolve_paths(Draft& draft, Files files, Faults& faults) {
  for (const auto& field : fields()) {
    if (field.path == PathKind::none) continue;
    for (std::string* path : texts_of(field, draft.deck)) {
      std::string& text = *path;
      const auto resolve = [&] {
        REQUIRE(!text.starts_with('~'),
                "{}: {} = {}: no shell is there to replace the '~': write ${{HOME}}, which is expanded, or "
                "the whole path; ./~ is a name that begins so",
                draft.source[field.key], field.key, toml_string(text));
        text = expand(field, text, draft.source[field.key], files);
        const std::string remote = why_not_local(text);
        REQUIRE(remote.empty(), "{}: {}: {}", draft.source[field.key], field.key, remote);
        const bool word = (field.key == "checkpoint.resume" && (text == "auto" || text == "none")) ||
                          std::ranges::count(field.legal.choices, text) > 0;
        if (field.path == PathKind::read && !text.empty() && !word)
          text = whole_path(draft, field, text, files);
        require_plain(field, text, draft.source[field.key]);
        require_name(field, text, draft.source[field.key]);
      };
      if (faults.attempt(resolve)) continue;
      text.clear();  // the folder is not read
      faults.distrust(field.section());
    }
  }
  if (draft.deck.run.output.empty())
    draft.deck.run.output = "runs/" + fs::path(draft.deck.path).stem().string();
}

/// Gives a run the adapters of the folder that it starts from. A key that is also given must agree: of
/// lora.targets those of PEFT's folder, which says of all adapters that they are there.
void take_adapters(Draft& draft, const StartingPoint& point) {
  if (!point.adapters) return;
  Deck saved = draft.deck;
  saved.lora = *point.adapters;
  saved.model.trainable = point.whole;
  const auto take = [&](const char* key, bool must_agree) {
    const Field& field = *find_field(key);
    const std::string given = render(field, draft.deck), held = render(field, saved);
    if (draft.source[key] == "default") {
      assign(field, held, draft.deck, point.file);
      draft.source[key] = point.file;
      return;
    }
    REQUIRE(
        given == held || !must_agree,
        "{}: {} = {} contradicts the adapters in model.from ({}), which have {}: leave the key out, or start "
        "from the folder that `ztrain export {} --to FOLDER` makes, in which they are merged",
        draft.source[key], key, given, point.file, held, draft.deck.model.from);
  };
  for (const char* key : {"lora.rank", "lora.alpha", "lora.rslora", "lora.dora"}) take(key, true);
  std::ranges::sort(saved.lora.targets);
  take("lora.targets", false);
  if (point.base.empty()) return;
  std::vector<std::string> targets = draft.deck.lora.targets;
  std::ranges::sort(targets);
  REQUIRE(
      targets == saved.lora.targets,
      "{}: lora.targets = {} contradicts the adapters in model.from ({}), which have {}: leave the key out",
      draft.source["lora.targets"], render(*find_field("lora.targets"), draft.deck), point.file,
      render(*find_field("lora.targets"), saved));
  take("lora.dropout", false);
  if (!point.whole.empty()) take("model.trainable", false);
}

/// Returns whether the deck itself says how many tokens there are, those of model.add_tokens among them.
bool says_whole_vocabulary(const Draft& draft) {
  const std::string& source = draft.source.at("model.vocab_size");
  return draft.deck.model.vocab_size > 0 && source != "default" && source.rfind("preset", 0) != 0;
}

/// Adds model.add_tokens to the vocabulary of the model or its preset.
void add_tokens(Draft& draft, bool said) {
  Model& m = draft.deck.model;
  if (said || m.add_tokens == 0) return;
  m.vocab_size += m.add_tokens;
  draft.source["model.vocab_size"] += " and model.add_tokens";
}

/// Throws Error if the deck wants a head for words, and the folder has one for rewards.
void require_head(const Deck& deck, const StartingPoint& point) {
  REQUIRE(!point.rewards || is_reward_loss(deck.preference.loss_type),
          "model.from: '{}' is a reward model, whose head ({}) gives an answer one number, and "
          "preference.loss_type = \"{}\" needs a head for words; legal: \"reward\", or another model.from",
          deck.model.from, score_weight, deck.preference.loss_type);
}

/// Applies the model that model.from names. A key or preset that is also given must agree.
void apply_model_folder(Draft& draft, Files files) {
  const std::string& folder = draft.deck.model.from;
  if (folder.empty()) return;
  const bool whole = says_whole_vocabulary(draft);
  if (files == Files::elsewhere && !file_exists(folder, "model.from")) {
    REQUIRE(draft.deck.model.preset != "custom" || draft.source["model.hidden_size"] != "default",
            "{}: '{}' is not here, and nothing else says what the model is: give model.preset or its dims "
            "besides",
            draft.source["model.from"], folder);
    return add_tokens(draft, whole);
  }
  StartingPoint point = starting_point(folder, draft.deck.model.trust_config, draft.deck.model.base);
  if (!point.base.empty()) draft.deck.model.base = point.base;
  require_head(draft.deck, point);
  const std::string& file = point.file;
  draft.deck.model.upcycled = upcycle(draft.deck.model.family, point.settings);
  REQUIRE(
      !draft.deck.model.upcycled || draft.deck.lora.rank == 0,
      "model.from: '{}' is a dense model, whose feed-forward each expert copies: adapters alone "
      "(lora.rank = {}) would leave its drawn routers and its equal experts as they are; set lora.rank = 0",
      folder, draft.deck.lora.rank);
  draft.deck.model.origin = point.origin;
  draft.deck.model.origin_positions = point.positions;
  draft.deck.model.ends = point.ends;
  take_adapters(draft, point);
  for (const auto& [key, value] : point.settings) {
    const Field& field = *find_field(key);
    const std::string before = render(field, draft.deck);
    // 0 stands for a value that follows from others.
    const bool derived = before == "0" && (key == "model.head_dim" || key == "model.num_key_value_heads" ||
                                           key == "model.vocab_size");
    const bool given = draft.source[key] != "default" && !derived;
    assign(field, value, draft.deck, file);
    if (key == "model.vocab_size" && whole) draft.deck.model.vocab_size += draft.deck.model.add_tokens;
    const std::string now = render(field, draft.deck);
    const bool preset = draft.source[key].rfind("preset", 0) == 0;
    // The folder may hold a head of its own all the same.
    const bool own_head =
        key == "model.tie_word_embeddings" && (before == "false" || point.own_head) && !is_checkpoint(folder);
    // How strongly experts are balanced is a choice of the training.
    if (given && !preset && (own_head || key == "model.router_aux_loss_coef")) {
      assign(field, before, draft.deck, draft.source[key]);
      continue;
    }
    REQUIRE(!given || before == now, "{}: {} = {} contradicts {}, which says {}; {}", draft.source[key], key,
            before, file, now,
            preset ? "leave model.preset out, or name the folder of that model"
            : key == "model.num_experts"
                ? "leave the key out, or name as model.family a mixture that may start "
                  "from this model"
                : "leave the key out");
    if (!given)
      draft.source[key] =
          key == "model.tie_word_embeddings" && point.own_head ? file + own_head_source : file;
  }
  add_tokens(draft, whole);
}

void require_given(const GivenKeys& given, const std::string& path, Faults& faults) {
  for (const auto& field : fields()) {
    if (!field.standard.empty() || given.count(field.key) != 0) continue;
    faults.attempt_derived(
        [&] { fail("{}: {} is missing; it has no default: give {}", path, field.key, legal_text(field)); });
  }
}

/// Assigns each key by itself.
void assign_all(Draft& draft, const GivenKeys& given, Faults& faults) {
  for (const auto& field : fields()) {
    if (!field.standard.empty()) assign(field, field.standard, draft.deck, "default");
    draft.source[field.key] = "default";
  }
  apply_presets(draft, given, faults);
  for (const auto& field : fields()) {
    const auto it = given.find(field.key);
    if (it == given.end() || field.member() == "preset") continue;
    faults.attempt([&] { draft.set(field, it->second); }, it->second.line);
  }
  require_given(given, draft.deck.path, faults);
}

Deck build(const GivenKeys& given, const std::string& path, Files files, Faults& faults) {
  Draft draft;
  draft.deck.path = path;
  assign_all(draft, given, faults);
  resolve_paths(draft, files, faults);
  if (!faults.attempt([&] { apply_model_folder(draft, files); })) faults.distrust("model");
  SparseAttention& sparse = draft.deck.sparse_attention;
  faults.attempt([&] {
    if (files == Files::here || file_exists(sparse.layout, "sparse_attention.layout")) read_layout(sparse);
  });
  for (const auto& field : fields())
    draft.deck.origins.push_back({field.key, "", draft.source[field.key], true});
  validate(draft.deck, faults);
  faults.raise();
  for (std::size_t i = 0; i < fields().size(); ++i)
    draft.deck.origins[i].value = render(fields()[i], draft.deck);
  return draft.deck;
}

/// Refuses text that is plainly another program's configuration.
void require_toml(std::string_view text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  REQUIRE(!is_json && !path.ends_with(".yaml") && !path.ends_with(".yml"),
          "{}: {}, and a deck is TOML: `ztrain deck` prints one, and docs/coming-from.md tells the keys for "
          "the settings of other programs",
          path, is_json ? "this is JSON" : "its name ends as YAML's do");
}

}  // namespace

Deck parse_deck(std::string_view bytes, const std::string& path, const std::vector<std::string>& overrides,
                Files files) {
  REQUIRE(is_plain_text(path),
          "cannot read the deck '{}': its name is not UTF-8 text without control characters, which "
          "checkpoints can hold; rename it",
          printable(path));
  require_working_folder();
  const std::string_view text = utf8_text(bytes, path);
  require_toml(text, path);
  const toml::table file = parse_toml(text, path);
  Faults faults;
  GivenKeys given;
  std::deque<toml::table> tables;
  collect_keys(file, path, given, faults);
  collect_overrides(overrides, tables, given, faults);
  Deck deck = build(given, path, files, faults);
  deck.overrides = overrides;
  return deck;
}

Deck load_deck(const std::string& path, const std::vector<std::string>& overrides, Files files) {
  return parse_deck(read_file(path, most_deck_bytes, "the deck"), path, overrides, files);
}

std::vector<std::string> notes_on_variables(Deck deck) {
  std::vector<std::string> notes;
  for (const Field& field : fields())
    if (field.path != PathKind::none)
      for (const std::string* text : texts_of(field, deck))
        if (text->find("${") != text->npos)
          notes.push_back(fmt::format("{} = {}: a run needs this environment variable, which is not set here",
                                      field.key, toml_string(text->substr(text->find("${")))));
  if (deck.sparse_attention.mode == "file" && deck.sparse_attention.rows.empty())
    notes.push_back(fmt::format("sparse_attention.layout = {}: the file is not here, so all blocks count",
                                toml_string(deck.sparse_attention.layout)));
  return notes;
}

}  // namespace ztrain::config
