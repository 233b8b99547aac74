#pragma once
// Internal to config: what other programs call the settings that a deck has, or has not. The table is data;
// docs/coming-from.md tells the same at length.

#include <string>
#include <string_view>
#include <vector>

namespace ztrain::config {

struct OtherName {
  std::string_view key;     ///< of the deck; "": the note says what to do instead
  std::string_view names;   ///< with spaces between them: last parts, or "section.name" where that says more
  std::string_view note{};  ///< a sentence where there is a key, else a clause
};

/// Case does not matter, and - is _. Null: no program that is known here has it.
const OtherName* find_other_name(std::string_view name);

/// All names of one part.
const std::vector<std::string>& other_names();

}  // namespace ztrain::config
