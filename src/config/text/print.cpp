#include "config/text/print.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/fields/value.hpp"
#include "config/validate/refusals.hpp"

namespace ztrain::config {
namespace {

/// Returns the text with "# " before each line, broken between words at 100 columns.
std::string comment(const std::string& text) {
  std::string result(1, '#');
  std::size_t column = 1;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column + 1 + (end - begin) > 100) result.append("\n#"), column = 1;
    result.append(" ").append(text, begin, end - begin);
    column += 1 + (end - begin);
    begin = end + 1;
  }
  return result.append("\n");
}

std::string facts(const Field& field) {
  std::string text = field.standard.empty() ? "Must be given" : fmt::format("Default: {}", field.standard);
  if (!field.unit.empty()) text += fmt::format(". Unit: {}", field.unit);
  return fmt::format("{}. Legal: {}.", text, legal_text(field));
}

std::string template_entry(const Field& field) {
  const std::string setting = field.example.empty() ? fmt::format("#{} = {}", field.member(), field.standard)
                                                    : fmt::format("{} = {}", field.member(), field.example);
  return fmt::format("\n{}{}{}\n", comment(field.doc), comment(facts(field)), setting);
}

std::string markdown_row(const Field& field) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", field.member(), type_name(field),
                     field.standard.empty() ? "*must be given*" : fmt::format("`{}`", field.standard),
                     field.unit, markdown_cell(legal_text(field)), field.free_on_resume ? "yes" : "no",
                     markdown_cell(field.doc));
}

constexpr const char* markdown_head = R"(# The input deck

This page is generated from the field table in `src/config/fields/fields_*.cpp`: `ztrain deck --markdown > docs/inputs.md`.
`ztrain deck` prints the same as a commented deck to start from.

A deck is a [TOML](https://toml.io) file. Every key can be given on the command line too, where it wins over the file, a list as `a,b`:
`ztrain input.toml --optimizer.lr=1e-4 --run.steps=2000`. An unknown key, a value that is not legal, or two keys that
contradict each other stop the program with the file and the line. The run's output folder receives the resolved deck, in
which each value has a comment that tells where it came from.

Of what a run reads, a path in a deck is relative to the folder of the deck, so that decks and data can be moved together. All
other paths are relative to the folder in which ztrain is started: those of what a run writes (`run.output`, `checkpoint.folder`,
`checkpoint.export`, `device.algorithms`), and whatever is typed on the command line, where shells complete names. So what
ztrain prints can be typed as it is; checkpoints and exported models are printed as whole paths, which mean the same everywhere.
`${VAR}` stands for an environment variable.

"May change" tells which keys may differ when a run is resumed from a checkpoint.
)";

}  // namespace

std::string deck_template() {
  std::string text = "# Input deck of ztrain. Keys that are commented out show their defaults.\n";
  std::string section;
  for (const auto& field : fields()) {
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n\n{}[{}]\n", comment(section_doc(section)), section);
    }
    text += template_entry(field);
  }
  return text;
}

std::string inputs_markdown() {
  std::string text = markdown_head;
  std::string section;
  for (const auto& field : fields()) {
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n## [{}]\n\n{}\n\n", section, section_doc(section));
      text += "| key | type | default | unit | legal | may change | meaning |\n";
      text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    }
    text += markdown_row(field);
  }
  return text + refusals_markdown();
}

std::string resolved_toml(const Deck& deck) {
  std::string text = fmt::format("# {} as ztrain resolved it, and where each value came from.\n", deck.path);
  std::string section;
  for (std::size_t i = 0; i < fields().size(); ++i) {
    const Field& field = fields()[i];
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n[{}]\n", section);
    }
    const bool known = i < deck.origins.size();
    text += fmt::format("{}{} = {}  # {}\n", known && !deck.origins[i].used ? "#" : "", field.member(),
                        render(field, deck), known ? deck.origins[i].source : "default");
  }
  return text;
}

std::uint64_t deck_hash(const Deck& deck) {
  std::string text;
  for (const auto& field : fields()) {
    if (field.numeric) text += fmt::format("{} = {}\n", field.key, render(field, deck));
  }
  return hash_text(text);
}

}  // namespace ztrain::config
