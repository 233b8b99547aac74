#pragma once
// Internal to config: what a user meant by a name that no field has.

#include <string>

namespace ztrain::config {

/// A name of another program, or a slip of the fingers.
struct Suggestion {
  std::string text;      ///< "; did you mean 'optimizer.lr'?", to end a message
  bool certain = false;  ///< the name is that of a field elsewhere, or one that other programs use
};

/// key: "section.member", with more parts, or the member alone.
Suggestion suggestion(const std::string& key);

}  // namespace ztrain::config
