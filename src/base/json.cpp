#include "base/json.hpp"

#include <nlohmann/json.hpp>

namespace ztrain {

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text);
}

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

}  // namespace ztrain
