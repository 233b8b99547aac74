#pragma once
// Internal to config: TOML from outside. This header brings toml++ along.

#include <string>
#include <string_view>

#include <toml++/toml.h>

namespace ztrain::config {

/// The text parsed. name: what messages call it, such as the deck's path. Throws Error as "name:line: not
/// valid TOML: ...", also for a text that is nested deeper than any deck: the parser and what walks its
/// tables call themselves for each level.
toml::table parse_toml(std::string_view text, const std::string& name);

}  // namespace ztrain::config
