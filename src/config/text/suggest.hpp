#pragma once
// Internal to config. Guesses what a user meant by a name that no field has.

#include <string>

namespace ztrain::config {

/// A name of another program, or a typing slip.
struct Suggestion {
  std::string text;      ///< end of a message, such as "; did you mean 'optimizer.lr'?"
  bool certain = false;  ///< whether the name is a field's elsewhere, or one that other programs use
};

/// key is "section.member", with more parts, or the member alone.
Suggestion suggestion(const std::string& key);

}  // namespace ztrain::config
