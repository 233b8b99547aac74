#pragma once
// Internal to config. Parses TOML from outside, and converts TOML values to members of a deck and back. This
// header includes toml++.

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "config/fields/fields.hpp"

namespace ztrain::config {

/// Parses the text. name is used in messages, such as the deck's path. Throws Error as "name:line: not valid
/// TOML: ...", also for a text that is nested deeper than any deck, because the parser recurses for each
/// level.
toml::table parse_toml(std::string_view text, const std::string& name);

/// Stores a TOML value in the member for which the field stands. If the type is wrong or the value is not
/// legal, throws Error that starts with `where` and names the key, the value, the legal values and the
/// nearest one.
void assign(const Field& field, const toml::node& value, Deck& deck, std::string_view where);

/// Does the same for a value written as TOML.
void assign(const Field& field, std::string_view toml_value, Deck& deck, std::string_view where);

/// Throws Error, with `where`, unless metadata, logs and terminals can hold the text.
void require_plain(const Field& field, std::string_view text, std::string_view where);

/// Returns the member's value as TOML; assign() of it restores the member exactly.
std::string render(const Field& field, const Deck& deck);

/// Converts the rows of a list of tables {match, lr_scale, weight_decay}, and back. Has the same errors;
/// unknown keys within a table are errors too.
std::vector<ParameterGroup> groups_from(const Field& field, const toml::node& value, std::string_view where);
std::string groups_text(const std::vector<ParameterGroup>& groups);

/// Returns the value as the user would write it, cut if it is long, for messages.
std::string source_text(const toml::node& value);

/// Returns a string as a TOML basic string, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace ztrain::config
