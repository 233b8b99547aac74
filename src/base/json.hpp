#pragma once
// Converts JSON to text and back. These wrap nlohmann's members, because its parser and writer take a second
// to compile in each source that calls them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ztrain {

/// Limits on a text that others wrote. Parsing takes several times the bytes in memory.
struct JsonLimits {
  int depth = 16;                ///< largest depth of nested objects and lists
  std::int64_t bytes = 1 << 20;  ///< a usual model's largest file has about a thousand
};

/// Parses a text that this program wrote. Throws Error if it is not JSON.
nlohmann::json parse_json(std::string_view text);

/// Parses a text that others wrote. Throws Error that begins with `where` (the file) if it is not JSON,
/// exceeds a limit, or names a member of an object twice. Takes time in proportion to the text.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// Returns the text. indent is the spaces per level; -1: all on one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace ztrain
