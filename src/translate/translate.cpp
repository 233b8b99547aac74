#include "translate/translate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/text/suggest.hpp"

namespace ztrain::translate {
namespace {

using config::find_field;

/// Returns the key that a name has, "" if it has none: of the table of other programs' names, of the deck
/// itself, or of the only member of this name.
std::string key_of(const std::string& name, const Program& program) {
  if (const config::OtherName* row = config::find_setting(name)) return std::string(row->key);
  if (find_field(name) != nullptr) return name;
  if (find_field(name + ".name") != nullptr) return name + ".name";
  const auto known = keys_of(program);
  if (std::ranges::none_of(known, [&](const std::string& key) { return glob_match(key, name); })) return "";
  const std::string member = name.substr(name.rfind('.') + 1);
  for (const config::Field& field : config::fields())
    if (field.member() == member) return field.key;
  return "";
}

/// Returns a number of ranks or sequences, of which three have a product in 64 bits.
std::int64_t counted(const std::string& name, double x, std::int64_t standard) {
  constexpr std::int64_t most = 1 << 20;
  REQUIRE(x <= most, "{}: {} is more than any run has; at most {} is legal", name, x, most);
  return x >= 1 ? static_cast<std::int64_t>(x) : standard;
}

/// A translation under way.
class Translator {
 public:
  explicit Translator(const Context& all) : all_(all) {}

  /// Adds a line for a setting of a file.
  void add(const Setting& s, const Program& program) {
    Line line{.fate = Fate::unset, .name = s.name, .value = s.value.word, .where = s.where};
    if (s.value.kind == Value::Kind::nothing) return keep(line);
    const config::OtherName* row = config::find_setting(s.name);
    const Conversion* conversion = find_conversion(s.name);
    const std::string key = key_of(s.name, program);
    if (row == nullptr && conversion == nullptr && key.empty()) return line.fate = Fate::unknown, keep(line);
    if (!key.empty() && s.value.is("auto") && (program.name == "deepspeed" || program.name == "accelerate")) {
      line.fate = Fate::open;
      autos_.emplace_back(t.lines.size(), key);
      return keep(line);
    }
    if (conversion != nullptr) return take(conversion->run(s, all_), line);
    if (!key.empty()) return take(put(key, s.value.toml), line);
    if (row->without == config::Without::need) return take(leave(std::string(row->note), Fate::always), line);
    take(s.value.is("false") ? leave("off there, as here", Fate::always) : leave(std::string(row->note)),
         line);
  }

  /// Does what a program does without a name, for keys that nothing else gives.
  void add_default(const Default& d, const Program& program) {
    const Value* given = all_.find(d.name);
    if ((given != nullptr && !given->is("auto")) || (!d.with.empty() && all_.find(d.with) == nullptr)) return;
    Setting s{.name = std::string(d.name), .value = scalar(std::string(d.value)), .where = ""};
    if (d.value.starts_with('[')) s.value.toml = d.value;
    const Conversion* conversion = find_conversion(d.name);
    Taken taken = conversion ? conversion->run(s, all_) : put(key_of(s.name, program), s.value.toml);
    std::erase_if(taken.settings, [&](const auto& setting) { return t.keys.contains(setting.first); });
    const bool open = taken.fate == Fate::open && !t.keys.contains(key_of(s.name, program));
    if (taken.fate == Fate::taken ? taken.settings.empty() : !open) return;
    const std::string where = fmt::format("default of {}", program.title);
    take(taken, {.fate = taken.fate, .name = s.name, .value = s.value.word, .where = where});
  }

  void override_by(const std::string& word) {
    const std::string text = word.starts_with("--") ? word.substr(2) : word;
    const std::string key = text.substr(0, text.find('='));
    const config::Field* field = find_field(key);
    REQUIRE(field != nullptr && text.size() > key.size(), "command line: '{}' gives no key of a deck{}", word,
            config::suggestion(key).text);
    const std::string value = text.substr(key.size() + 1);
    Line line{.fate = Fate::taken, .name = key, .value = value, .where = "command line"};
    config::Deck scratch;
    try {
      config::assign(*field, value, scratch, line.where);
    } catch (const Error&) {
      config::assign(*field, config::toml_string(value), scratch, line.where);
    }
    t.keys[key] = {config::render(*field, scratch), t.lines.size()};
    line.keys.emplace_back(key, t.keys[key].toml);
    keep(line);
  }

  /// Returns the whole: keys that several settings make together, and those that a deck must have.
  Translation finish(int ranks) {
    make_betas();
    make_batch(ranks);
    make_length();
    if (!t.keys.contains("data.train"))
      require_given("data.train", "[\"data/train.h5\"]", "token files, which tools/prepare_data.py makes");
    for (const auto& [index, key] : autos_) {
      const auto held = t.keys.find(key);
      const bool said = held != t.keys.end() && held->second.line < t.lines.size();
      t.lines[index].note = said ? fmt::format("{} of {} says {}", t.lines[held->second.line].name,
                                               t.lines[held->second.line].where, key)
                                 : fmt::format("no file says it, and {} is left out", key);
    }
    return std::move(t);
  }

 private:
  void keep(Line line) { t.lines.push_back(std::move(line)); }

  /// Returns the value as a deck has it, or "" with a note on the line if the key does not take it.
  static std::string legal(const std::string& key, const std::string& toml, Line& line) {
    const config::Field* field = find_field(key);
    if (field == nullptr) {  // a part
      const bool sound = key == part::data || scalar(toml).number() > 0;
      if (!sound) line.note = fmt::format("{} needs a number above 0", whole_key(key));
      return sound ? toml : "";
    }
    config::Deck scratch;
    try {
      config::assign(*field, toml, scratch, line.where);
      return config::render(*field, scratch);
    } catch (const Error&) {
      line.note = fmt::format("{} takes {}", key, config::legal_text(*field));
      return "";
    }
  }

  void take(const Taken& taken, Line line) {
    line.fate = taken.fate;
    line.note = taken.note;
    for (const auto& [key, toml] : taken.settings) {
      const std::string value = legal(key, toml, line);
      if (value.empty()) {
        line.fate = Fate::open;
        continue;
      }
      line.keys.emplace_back(key, value);
      if (key == part::data)
        data_.push_back(value),
            t.keys["data.train"] = {fmt::format("[{}]", fmt::join(data_, ", ")), t.lines.size()};
      t.keys[key] = {value, t.lines.size()};
    }
    keep(std::move(line));
  }

  void require_given(const std::string& key, const std::string& toml, const std::string& remark) {
    t.keys[key] = {toml, t.lines.size()};
    t.remarks[key] = remark;
  }

  void make_betas() {
    const auto of = [&](const char* key, const char* standard) {
      const auto held = t.keys.find(key);
      return held == t.keys.end() ? Held{standard, t.lines.size()} : held->second;
    };
    const Held first = of(part::beta1, "0.9"), second = of(part::beta2, "0.95");
    if (std::min(first.line, second.line) < t.lines.size() && !t.keys.contains("optimizer.betas"))
      t.keys["optimizer.betas"] = {fmt::format("[{}, {}]", first.toml, second.toml),
                                   std::min(first.line, second.line)};
  }

  std::int64_t count(const std::string& key, std::int64_t standard) const {
    const auto held = t.keys.find(key);
    return held == t.keys.end() ? standard
                                : counted(whole_key(key), scalar(held->second.toml).number(), standard);
  }

  /// Other programs count the sequences of a rank, a deck those of a step.
  void make_batch(int ranks) {
    const bool known = ranks > 0;
    const std::int64_t others =
        count("mesh.tensor", 1) * count("mesh.pipeline", 1) * count("mesh.context", 1);
    const std::int64_t data_ranks = std::max<std::int64_t>(1, std::max(ranks, 1) / others);
    const std::int64_t steps = count(part::accumulation, 1);
    if (t.keys.contains("batch.global")) {
      if (!t.keys.contains("batch.micro") && known && t.keys.contains(part::accumulation))
        require_given(
            "batch.micro",
            fmt::to_string(std::max<std::int64_t>(1, count("batch.global", 1) / (steps * data_ranks))),
            "batch.global / accumulation / data-parallel ranks");
      return;
    }
    const std::int64_t micro = count("batch.micro", 1);
    const auto held = t.keys.find(part::accumulation);
    const std::size_t line = held == t.keys.end() ? t.lines.size() : held->second.line;
    t.keys["batch.global"] = {fmt::to_string(micro * steps * data_ranks), line};
    t.remarks["batch.global"] =
        known ? fmt::format("{} sequences of a rank x {} micro-batches x {} data-parallel ranks", micro,
                            steps, data_ranks)
              : fmt::format(
                    "{} sequences of a rank x {} micro-batches, for one rank: no file says how many "
                    "there are, --ranks N does",
                    micro, steps);
  }

  void make_length() {
    const auto steps = t.keys.find("run.steps"), epochs = t.keys.find("run.epochs");
    if (steps == t.keys.end() && epochs == t.keys.end() && !t.keys.contains("run.tokens"))
      return require_given("run.steps", "1000", "no file says how long the run is");
    if (steps != t.keys.end() && epochs != t.keys.end())
      t.keys.erase(steps->second.line > epochs->second.line ? epochs : steps);
  }

  const Context& all_;
  Translation t;
  std::vector<std::string> data_;
  std::vector<std::pair<std::size_t, std::string>> autos_;  ///< indices of lines, and their keys
};

}  // namespace

std::string whole_key(const std::string& key) {
  if (key == part::accumulation) return "batch.global";
  if (key == part::data) return "data.train";
  return key == part::beta1 || key == part::beta2 ? "optimizer.betas" : key;
}

Translation translate(const Request& request) {
  std::vector<Setting> settings;
  std::vector<const Program*> programs_of;  // of each setting
  std::vector<Source> sources;
  for (const std::string& file : request.files) {
    const auto read = read_settings(file);
    const Program& program = request.from.empty() ? recognise(read, file) : find_program(request.from);
    sources.push_back({std::filesystem::path(file).filename(), &program});
    settings.insert(settings.end(), read.begin(), read.end());
    programs_of.resize(settings.size(), &program);
  }
  const Context all{settings};
  Translator translator(all);
  for (std::size_t i = 0; i < settings.size(); ++i) translator.add(settings[i], *programs_of[i]);
  for (const Program& program : programs())
    if (std::ranges::count(sources, &program, &Source::program) > 0)
      for (const Default& d : program.defaults) translator.add_default(d, program);
  for (const std::string& word : request.overrides) translator.override_by(word);
  const int said = static_cast<int>(counted("num_processes", all.number("num_processes"), 0));
  Translation result = translator.finish(request.ranks > 0 ? request.ranks : said);
  result.sources = std::move(sources);
  return result;
}

}  // namespace ztrain::translate
