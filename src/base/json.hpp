#pragma once
// JSON to text and back. Here rather than by nlohmann's members, because its parser and its writer take a
// second to compile in each source that calls them.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ztrain {

/// What the text holds. Throws nlohmann::json::exception where it is not JSON.
nlohmann::json parse_json(std::string_view text);

/// indent: spaces a level; -1: all on one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace ztrain
