#pragma once
// Internal to config. Guesses what a user meant by a name that no field has. The table of other programs'
// names for settings is in other_names.cpp; docs/coming-from.md says the same at length.

#include <string>
#include <string_view>
#include <vector>

namespace ztrain::config {

/// A name of another program, or a typing slip.
struct Suggestion {
  std::string text;      ///< end of a message, such as "; did you mean 'optimizer.lr'?"
  bool certain = false;  ///< whether the name is a field's elsewhere, or one that other programs use
};

/// key is "section.member", with more parts, or the member alone.
Suggestion suggestion(const std::string& key);

/// Names that other programs have for a setting of a deck, or for one that a deck does not have.
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
