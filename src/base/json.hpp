#pragma once
// JSON to text and back. Here rather than by nlohmann's members, because its parser and its writer take a
// second to compile in each source that calls them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ztrain {

/// What a text that others wrote may have at most. Parsing takes several times the bytes in memory.
struct JsonLimits {
  int depth = 16;                ///< objects and lists in each other
  std::int64_t bytes = 1 << 20;  ///< the largest file of a usual model is about a thousand
};

/// What a text of this program's own holds. Throws Error where it is not JSON.
nlohmann::json parse_json(std::string_view text);

/// What a text that others wrote holds. Throws Error that begins with `where` (the file) where it is not
/// JSON, is beyond a limit, or names a member of an object twice. Takes time in proportion to the text.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// indent: spaces a level; -1: all on one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace ztrain
