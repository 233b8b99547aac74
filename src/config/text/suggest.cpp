#include "config/text/suggest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/text.hpp"
#include "config/fields/fields.hpp"

namespace ztrain::config {
namespace {

std::string in_question(const std::vector<std::string>& keys) {
  return fmt::format("; did you mean '{}'?", fmt::join(keys, "' or '"));
}

std::string text_of(const OtherName& other) {
  if (other.key.empty()) return fmt::format("; {}", other.note);
  return in_question({std::string(other.key)}) + (other.note.empty() ? "" : fmt::format(" {}", other.note));
}

template <class Predicate>
std::vector<std::string> keys_where(const Predicate& holds) {
  std::vector<std::string> keys;
  for (const Field& field : fields())
    if (holds(field)) keys.push_back(field.key);
  return keys;
}

/// Returns a similar name of the section, else of another program, else of any section.
std::string similar(const std::string& section, const std::string& member) {
  const auto near = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> members;
    for (const std::string& key : keys) members.push_back(key.substr(key.rfind('.') + 1));
    const std::string best = nearest(member, members);
    const auto at = std::ranges::find(members, best);
    return best.empty() ? std::string() : in_question({keys[static_cast<std::size_t>(at - members.begin())]});
  };
  std::string text = near(keys_where([&](const Field& f) { return f.section() == section; }));
  if (text.empty()) {
    const OtherName* other = find_other_name(nearest(member, other_names()));
    text = other ? text_of(*other) : near(field_keys());
  }
  return text.empty() ? "; `ztrain deck` lists all keys, and docs/coming-from.md those of other programs"
                      : text;
}

/// Returns the table within a section that a key such as zero_optimization.offload_param.device stands in.
const OtherName* enclosing(const std::string& key) {
  const std::size_t first = key.find('.'), last = key.rfind('.');
  if (first == last) return nullptr;
  const std::string tables = key.substr(0, last);
  return find_other_name(tables.substr(tables.rfind('.') + 1));
}

}  // namespace

Suggestion suggestion(const std::string& key) {
  const std::string section = key.substr(0, key.find('.')), member = key.substr(key.rfind('.') + 1);
  if (const OtherName* other = key == member ? nullptr : find_other_name(key)) return {text_of(*other), true};
  const auto same = keys_where([&](const Field& f) { return f.member() == member; });
  // A `stage` in a wrong section is another program's strategy far more often than data.stage.
  if (const OtherName* other = find_other_name(member)) return {text_of(*other), true};
  if (!same.empty()) return {in_question(same), true};
  const auto ending = keys_where(
      [&](const Field& f) { return f.section() == section && f.member().ends_with("_" + member); });
  if (!ending.empty()) return {in_question({ending[0]}), true};
  if (const OtherName* other = enclosing(key)) return {text_of(*other), true};
  return {similar(section, member), false};
}

}  // namespace ztrain::config
