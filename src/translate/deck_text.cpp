#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/text/suggest.hpp"
#include "translate/translate.hpp"

namespace ztrain::translate {
namespace {

struct Group {
  Fate fate;
  const char* title;
};
constexpr Group groups[] = {
    {Fate::open, "To be given by you, or left to the defaults"},
    {Fate::none, "No counterpart"},
    {Fate::always, "Always so here, or not needed"},
    {Fate::unset, "Not set there"},
    {Fate::unknown, "Names that ztrain does not know"},
};

std::string line_text(const Line& line) {
  const std::string note = without_advice(line.note);
  return fmt::format("# {}: {} = {}{}\n", line.where, line.name, printable(line.value, most_quoted),
                     note.empty() ? "" : fmt::format("  ({})", note));
}

/// Returns the comments on the setting at index i, which gave a key, or a part of one, its value.
std::string source_text(const Translation& t, std::size_t i, const std::string& given, bool first) {
  const Line& line = t.lines[i];
  const Held& held = t.keys.at(given);
  const bool counts = i == held.line || given == part::data;
  if (!first) return counts ? fmt::format("# from {}\n", line.name) : "";
  std::string text = line_text(line);
  const bool other = !counts && held.line < t.lines.size();
  const auto& value =
      std::ranges::find(line.keys, given, &std::pair<std::string, std::string>::first)->second;
  if (other && value != held.toml)
    text += fmt::format("#   set aside: {} counts ({})\n", t.lines[held.line].name, t.lines[held.line].where);
  return text;
}

std::string sources_text(const Translation& t, const std::string& key, std::set<std::size_t>& printed) {
  std::string text;
  for (std::size_t i = 0; i < t.lines.size(); ++i) {
    const auto gave =
        std::ranges::find_if(t.lines[i].keys, [&](const auto& k) { return whole_key(k.first) == key; });
    if (gave != t.lines[i].keys.end()) text += source_text(t, i, gave->first, printed.insert(i).second);
  }
  if (const auto remark = t.remarks.find(key); remark != t.remarks.end())
    text += fmt::format("# {}\n", remark->second);
  return text;
}

constexpr const char* no_model =
    "# no file names the model: give from = \"FOLDER\", a Hugging Face folder, or a preset\n";

/// Returns lines that a user completes: how token files are made, and what no other program's file says.
std::string lines_to_complete(const Translation& t, const std::string& section) {
  const auto from = t.keys.find("model.from");
  if (section == "data")
    return fmt::format(
               "# tools/prepare_data.py RECORDS... --tokenizer {} --output data/NAME.h5 makes a token file\n",
               from == t.keys.end() ? "FOLDER" : from->second.toml) +
           (t.keys.contains("data.validation") || t.keys.contains("data.validation_fraction")
                ? ""
                : "# validation = [\"data/NAME.validation.h5\"]  # which --validation 0.01 of that tool "
                  "makes\n");
  if (section != "checkpoint" || t.keys.contains("checkpoint.export")) return "";
  return std::string("# export = \"FOLDER\"  # a Hugging Face folder, written at the end of the run\n") +
         (t.keys.contains("lora.rank") ? "# export_adapter = true  # the adapters alone, as PEFT's folder\n"
                                       : "");
}

std::string section_text(const Translation& t, const std::string& section, std::set<std::size_t>& printed) {
  std::string text;
  for (const config::Field& field : config::fields()) {
    if (field.section() != section || !t.keys.contains(field.key)) continue;
    text += sources_text(t, field.key, printed);
    text += fmt::format("{} = {}\n", field.member(), t.keys.at(field.key).toml);
  }
  if (section == "model" && !t.keys.contains("model.from") && !t.keys.contains("model.preset") &&
      !t.keys.contains("model.hidden_size"))
    text += no_model;
  return text + lines_to_complete(t, section);
}

}  // namespace

std::string without_advice(std::string_view note) {
  constexpr std::string_view advice = ": leave it out";
  if (note.ends_with(advice)) note.remove_suffix(advice.size());
  return std::string(note);
}

std::string deck_text(const Translation& t) {
  std::string text = "# A deck of ztrain, made by `ztrain translate` from";
  for (std::size_t i = 0; i < t.sources.size(); ++i)
    text += fmt::format("{} {} ({})", i == 0 ? "" : ",", t.sources[i].file, t.sources[i].program->title);
  text += ".\n# Each name of theirs has a line: above the key that it became, or at the end.\n";
  std::set<std::size_t> printed;
  for (const std::string& section : config::section_names())
    if (const std::string keys = section_text(t, section, printed); !keys.empty())
      text += fmt::format("\n[{}]\n{}", section, keys);
  for (const Group& group : groups) {
    std::string lines;
    for (std::size_t i = 0; i < t.lines.size(); ++i)
      if (!printed.contains(i) &&
          (t.lines[i].fate == group.fate || (group.fate == Fate::always && t.lines[i].fate == Fate::taken)))
        lines += line_text(t.lines[i]);
    if (!lines.empty()) text += fmt::format("\n# {}\n#\n{}", group.title, lines);
  }
  return text;
}

std::string counts_text(const Translation& t) {
  std::vector<std::string> parts;
  for (const auto& [fate, what] :
       {std::pair(Fate::open, "to be given"), std::pair(Fate::none, "without a counterpart"),
        std::pair(Fate::unknown, "unknown to ztrain")}) {
    const auto count = std::ranges::count_if(
        t.lines, [&](const Line& line) { return line.fate == fate && line.keys.empty(); });
    if (count > 0)
      parts.push_back(
          fmt::format("{} {}", parts.empty() ? count_text(count, "name") : fmt::to_string(count), what));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace ztrain::translate
