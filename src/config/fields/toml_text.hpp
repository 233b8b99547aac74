#pragma once
// Internal to config. Parses TOML from outside. This header includes toml++.

#include <string>
#include <string_view>

#include <toml++/toml.h>

namespace ztrain::config {

/// Parses the text. name is used in messages, such as the deck's path. Throws Error as "name:line: not valid
/// TOML: ...", also for a text that is nested deeper than any deck, because the parser recurses for each
/// level.
toml::table parse_toml(std::string_view text, const std::string& name);

}  // namespace ztrain::config
