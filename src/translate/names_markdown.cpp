#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "config/text/suggest.hpp"
#include "translate/translate.hpp"

namespace ztrain::translate {
namespace {

/// A line of a table: names that have the same key and remark.
struct Entry {
  std::vector<std::string> names;
  std::string key, remark;
};

/// Returns the name as it is looked up: a section that ends in .* has the row of the section.
std::string looked_up(const std::string& key) {
  return key.ends_with(".*") ? key.substr(0, key.size() - 2) : key;
}

std::string key_text(const config::OtherName* row, const std::string& name) {
  if (row != nullptr && row->key.empty()) return row->without == config::Without::need ? "not needed" : "no";
  if (row != nullptr) return fmt::format("`{}`", row->key);
  if (config::find_field(name + ".name") != nullptr) return fmt::format("`{}.name`", name);
  for (const config::Field& field : config::fields())
    if (field.key == name || field.member() == name.substr(name.rfind('.') + 1))
      return fmt::format("`{}`", field.key);
  return "no";
}

/// Returns a remark of its own, or else that of the conversion, or else the note of the row.
std::string remark_of(const Program& program, const std::string& name) {
  const config::OtherName* row = config::find_setting(name);
  const Conversion* conversion = find_conversion(name);
  const std::string note = row == nullptr ? "" : without_advice(row->note);
  std::string remark(remark_on(name, conversion != nullptr ? conversion->doc : std::string_view(note)));
  for (const Default& d : program.defaults)
    if (d.name == name) remark += fmt::format("{}default there: `{}`", remark.empty() ? "" : "; ", d.value);
  return remark;
}

std::vector<Entry> entries(const Program& program, const std::vector<std::string>& keys) {
  std::vector<Entry> all;
  for (const std::string& key : keys) {
    const std::string name = looked_up(key);
    const config::OtherName* row = config::find_setting(name);
    // Sections whose members have rows of their own.
    if (name != key && (row == nullptr || !row->key.empty())) continue;
    Entry entry{{key}, key_text(row, name), remark_of(program, name)};
    if (!all.empty() && all.back().key == entry.key && all.back().remark == entry.remark)
      all.back().names.push_back(key);
    else
      all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace

std::string names_markdown() {
  std::string text;
  for (const Program& program : programs()) {
    text += fmt::format("\n### {}\n\nFiles: {}.\n", program.title, program.files);
    text += "\n| name | deck | remarks |\n| --- | --- | --- |\n";
    std::vector<std::string> keys = keys_of(program);
    if (program.name == "trl") keys.resize(keys.size() - keys_of(find_program("transformers")).size());
    for (const Entry& entry : entries(program, keys))
      text += fmt::format("| `{}` | {} | {} |\n", fmt::join(entry.names, "`, `"), entry.key,
                          markdown_cell(entry.remark));
  }
  return text;
}

}  // namespace ztrain::translate
