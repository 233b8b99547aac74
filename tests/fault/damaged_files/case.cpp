#include "case.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "judge.hpp"

namespace ztrain::damaged_files {

namespace fs = std::filesystem;

void Case::copy(const std::string& subject) {
  fs::copy(seeds_ / subject, folder, fs::copy_options::recursive);
}

Outcome Case::run(const Words& words) {
  outcomes.push_back({.words = words});
  if (before_command) before_command();
  Outcome outcome = run_command(session_, capture_, words);
  if (const std::string wrong = wrong_in(outcome, folder); !wrong.empty())
    found(wrong, outcome.err + outcome.message);
  outcomes.back() = outcome;
  return outcome;
}

void Case::require_same(const std::string& what, const std::string& now, const std::string& sound) {
  if (now != sound) found(fmt::format("accepts what is damaged: another {}", what), now.substr(0, 300));
}

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{{"deck", 4, make_deck, attack_deck},
                                        {"model", 3, make_model, attack_model},
                                        {"tokens", 3, make_tokens, attack_tokens},
                                        {"checkpoint", 3, make_checkpoint, attack_checkpoint}};
  return all;
}

DeckKeys small_deck() {
  return {{"data.train", R"(["text.txt"])"},  {"data.sequence", "16"},
          {"data.validation_fraction", "0"},  {"model.hidden_size", "16"},
          {"model.intermediate_size", "24"},  {"model.num_hidden_layers", "1"},
          {"model.num_attention_heads", "2"}, {"model.num_key_value_heads", "1"},
          {"model.vocab_size", "257"},        {"batch.global", "2"},
          {"precision.preset", R"("fp32")"},  {"run.steps", "2"},
          {"run.output", R"("run")"}};
}

std::string toml_of(const DeckKeys& keys) {
  std::vector<std::pair<std::string, std::string>> sections;
  for (auto at = keys.begin(); at != keys.end(); ++at) {
    const bool again =
        std::any_of(at + 1, keys.end(), [&](const auto& later) { return later.first == at->first; });
    if (again) continue;
    const std::string section = at->first.substr(0, at->first.find('.'));
    auto found =
        std::find_if(sections.begin(), sections.end(), [&](const auto& s) { return s.first == section; });
    if (found == sections.end()) found = sections.insert(sections.end(), {section, "[" + section + "]\n"});
    found->second += fmt::format("{} = {}\n", at->first.substr(at->first.find('.') + 1), at->second);
  }
  std::string text;
  for (const auto& [section, lines] : sections) text += lines;
  return text;
}

std::string sound_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} says {}.\n", i, i * i % 97);
  return text;
}

}  // namespace ztrain::damaged_files
