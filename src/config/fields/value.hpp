#pragma once
// TOML values into the members of a deck, and back. Internal to config: this header brings toml++ along.

#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "config/fields/fields.hpp"

namespace ztrain::config {

/// Stores a TOML value in the member that the field stands for. Throws Error that starts with `where` and
/// names the key, the value, what is legal and the nearest legal value, when the type is wrong or the value
/// is not legal.
void assign(const Field& field, const toml::node& value, Deck& deck, std::string_view where);

/// The same for a value written as TOML.
void assign(const Field& field, std::string_view toml_value, Deck& deck, std::string_view where);

/// Throws Error, with `where`, unless the text is one that metadata, logs and terminals can hold.
void require_plain(const Field& field, std::string_view text, std::string_view where);

/// The member's value as TOML; assign() of it restores the member exactly.
std::string render(const Field& field, const Deck& deck);

/// The rows of a list of tables {match, lr_scale, weight_decay}, and back. The same errors; unknown keys
/// within a table are errors too.
std::vector<ParameterGroup> groups_from(const Field& field, const toml::node& value, std::string_view where);
std::string groups_text(const std::vector<ParameterGroup>& groups);

/// The value as the user would write it, cut where it is long: for messages.
std::string source_text(const toml::node& value);

/// A string as a TOML basic string, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace ztrain::config
