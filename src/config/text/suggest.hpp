#pragma once
// Guesses what a user meant by a name that no field has. The table of other programs' names for settings is
// in other_names.cpp and other_names_without.cpp; `ztrain translate` and docs/coming-from.md follow from it
// too.

#include <cstdint>
#include <span>
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

/// Why a name has no key: it is always so or not needed here, or there is nothing like it.
enum class Without : std::uint8_t { need, counterpart };

/// Names that other programs have for a setting of a deck, or for one that a deck does not have.
struct OtherName {
  std::string_view key;     ///< key of the deck; "": the note says what to do instead
  std::string_view names;   ///< names separated by spaces: last parts, or "section.name" if that says more
  std::string_view note{};  ///< a sentence if there is a key, else a clause
  Without without = Without::counterpart;  ///< only if there is no key
};

/// Returns the rows without a key.
std::span<const OtherName> names_without_key();

/// Finds a name. Case does not matter, and - counts as _. A name of the table that ends in * stands for all
/// that begin so. Returns null if no known program has it.
const OtherName* find_other_name(std::string_view name);

/// Finds a setting by its whole path, such as "zero_optimization.offload_param.device": the longest ending of
/// the path that the table has, or else a row without a key for a table around it.
const OtherName* find_setting(std::string_view path);

/// Returns whether one of the names, which are separated by spaces, is the name.
bool names_have(std::string_view names, std::string_view name);

/// Returns all names of one part.
const std::vector<std::string>& other_names();

}  // namespace ztrain::config
