
#include <filesystem>

#include <fmt/format.h>

#include "config/fields/value.hpp"
#include "config/validate/validate.hpp"

namespace ztrain::config {
namespace {

void drop_folders(Deck& deck) {
  for (auto* list : {&deck.data.train, &deck.data.validation}) {
    for (auto& pattern : *list) pattern = std::filesystem::path(pattern).filename();
  }
}

}  // namespace

std::vector<std::string> changes_forbidden_on_resume(const Deck& now, const std::string& saved_resolved_toml,
                                                     const std::string& where) {
  const toml::table table = parse_toml(saved_resolved_toml, where);
  Deck saved = now, current = now;
  for (const auto& field : fields()) {
    const toml::node* value = table[field.section()][field.member()].node();
    if (value != nullptr) assign(field, *value, saved, where);
  }
  drop_folders(saved);
  drop_folders(current);
  std::vector<std::string> messages;
  for (const auto& field : fields()) {
    if (field.free_on_resume) continue;
    const std::string before = render(field, saved), after = render(field, current);
    if (before == after) continue;
    messages.push_back(fmt::format("{}: {} was {} when the checkpoint was written and is {} now",
                                   source_of(now, field.key), field.key, before, after));
  }
  return messages;
}

}  // namespace ztrain::config
