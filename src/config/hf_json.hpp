#pragma once
// Internal to config: config.json of a Hugging Face model as JSON, with messages that name file and key.

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ztrain::config {

/// The object that the file holds. Throws Error where it cannot be read, is far too large, or is not JSON.
nlohmann::json read_hf_config(const std::string& path);

/// The members of one JSON object, with messages that name file and key.
/// A null counts as absent, except for contains().
class Members {
 public:
  Members(std::string where, const nlohmann::json& object) : where_(std::move(where)), object_(object) {}

  bool contains(const char* key) const { return object_.contains(key); }
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  std::int64_t integer(const char* key) const {
    REQUIRE(has(key), "{}: {} is missing", where_, key);
    REQUIRE(object_.at(key).is_number_integer(), "{}: {} = {}: must be a whole number", where_, key,
            text(key));
    return object_.at(key).get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t standard) const {
    return has(key) ? integer(key) : standard;
  }
  double number(const char* key, double standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_number(), "{}: {} = {}: must be a number", where_, key, text(key));
    return object_.at(key).get<double>();
  }
  double number(const char* key) const {
    REQUIRE(has(key), "{}: {} is missing", where_, key);
    return number(key, 0);
  }
  bool boolean(const char* key, bool standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_boolean(), "{}: {} = {}: must be true or false", where_, key, text(key));
    return object_.at(key).get<bool>();
  }
  std::string string(const char* key, const char* standard) const {
    if (!has(key)) return standard;
    REQUIRE(object_.at(key).is_string(), "{}: {} = {}: must be a string", where_, key, text(key));
    return object_.at(key).get<std::string>();
  }
  Members object(const char* key) const {
    REQUIRE(object_.at(key).is_object(), "{}: {} = {}: must be an object", where_, key, text(key));
    return {fmt::format("{}: {}", where_, key), object_.at(key)};
  }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }
  std::string text(const char* key) const { return object_.at(key).dump().substr(0, 100); }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  const nlohmann::json& object_;
};

}  // namespace ztrain::config
