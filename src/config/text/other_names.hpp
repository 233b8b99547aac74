#pragma once
// Internal to config. Lists other programs' names for settings of a deck, and for settings that a deck does
// not have. docs/coming-from.md says the same at length.

#include <string>
#include <string_view>
#include <vector>

namespace ztrain::config {

struct OtherName {
  std::string_view key;     ///< key of the deck; "": the note says what to do instead
  std::string_view names;   ///< names separated by spaces: last parts, or "section.name" if that says more
  std::string_view note{};  ///< a sentence if there is a key, else a clause
};

/// Finds a name. Case does not matter, and - counts as _. Returns null if no known program has it.
const OtherName* find_other_name(std::string_view name);

/// Returns all names of one part.
const std::vector<std::string>& other_names();

}  // namespace ztrain::config
