#include "config/hf/hf_json.hpp"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "files/file.hpp"

namespace ztrain::config {

using nlohmann::json;

json read_json(const std::string& path, std::int64_t largest) {
  json parsed = parse_json(read_file(path, largest), path, {.bytes = largest});
  REQUIRE(parsed.is_object(), "{}: is not a JSON object", path);
  return parsed;
}

json read_hf_config(const std::string& path) {
  REQUIRE(file_exists(path, "model.from"),
          "model.from: there is no '{}'; give a folder with config.json and safetensors files", path);
  return read_json(path);
}

bool Members::contains(const char* key) const {
  return object_.contains(key);
}

bool Members::has(const char* key) const {
  return object_.contains(key) && !object_.at(key).is_null();
}

std::int64_t Members::integer(const char* key) const {
  REQUIRE(has(key), "{}: {} is missing", where_, key);
  REQUIRE(object_.at(key).is_number_integer(), "{}: {} = {}: must be a whole number", where_, key, text(key));
  return whole(key, object_.at(key), std::numeric_limits<std::int64_t>::max());
}

std::int64_t Members::integer(const char* key, std::int64_t standard) const {
  return has(key) ? integer(key) : standard;
}

double Members::number(const char* key, double standard) const {
  if (!has(key)) return standard;
  REQUIRE(object_.at(key).is_number(), "{}: {} = {}: must be a number", where_, key, text(key));
  return object_.at(key).get<double>();
}

double Members::number(const char* key) const {
  REQUIRE(has(key), "{}: {} is missing", where_, key);
  return number(key, 0);
}

bool Members::boolean(const char* key, bool standard) const {
  if (!has(key)) return standard;
  REQUIRE(object_.at(key).is_boolean(), "{}: {} = {}: must be true or false", where_, key, text(key));
  return object_.at(key).get<bool>();
}

std::string Members::string(const char* key, const char* standard) const {
  if (!has(key)) return standard;
  REQUIRE(object_.at(key).is_string(), "{}: {} = {}: must be a string", where_, key, text(key));
  return object_.at(key).get<std::string>();
}

std::vector<std::int32_t> Members::tokens(const char* key) const {
  std::vector<std::int32_t> ids;
  if (!has(key)) return ids;
  const json& value = object_.at(key);
  for (const auto& id : value.is_array() ? value : json::array({value})) {
    REQUIRE(id.is_number_integer(), "{}: {} = {}: must be a token id or a list of them", where_, key,
            text(key));
    const std::int64_t token = whole(key, id, std::numeric_limits<std::int32_t>::max());
    REQUIRE(token >= -1, "{}: {} = {}: {} is no token id", where_, key, text(key), token);
    if (token >= 0) ids.push_back(static_cast<std::int32_t>(token));
  }
  return ids;
}

Members Members::object(const char* key) const {
  REQUIRE(object_.at(key).is_object(), "{}: {} = {}: must be an object", where_, key, text(key));
  return {fmt::format("{}: {}", where_, key), object_.at(key)};
}

const json& Members::at(const char* key) const {
  return object_.at(key);
}

std::string Members::text(const char* key) const {
  return json_text(object_.at(key)).substr(0, 100);
}

std::int64_t Members::whole(const char* key, const json& number, std::int64_t largest) const {
  const bool fits = number.is_number_unsigned()
                        ? number.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest)
                        : number.get<std::int64_t>() <= largest;
  REQUIRE(fits, "{}: {} = {}: {} is above {}, the largest legal value", where_, key, text(key),
          json_text(number), largest);
  return number.get<std::int64_t>();
}

}  // namespace ztrain::config
