#pragma once
// Internal to config: the JSON files of models and checkpoints, with messages that name file and key.

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace ztrain::config {

inline constexpr std::int64_t largest_config = 1 << 20;  ///< bytes; real ones are about a thousand

/// The object that the file holds. Throws Error where it cannot be read, has more bytes than `largest`, is
/// nested more than 16 deep, or is no JSON object.
nlohmann::json read_json(const std::string& path, std::int64_t largest = largest_config);

/// The same for the config.json of model.from, which the message names where the file is not there.
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
    return whole(key, object_.at(key), std::numeric_limits<std::int64_t>::max());
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
  /// One token id or a list of them; -1, which older files have for "none", is left out.
  std::vector<std::int32_t> tokens(const char* key) const {
    std::vector<std::int32_t> ids;
    if (!has(key)) return ids;
    const nlohmann::json& value = object_.at(key);
    for (const auto& id : value.is_array() ? value : nlohmann::json::array({value})) {
      REQUIRE(id.is_number_integer(), "{}: {} = {}: must be a token id or a list of them", where_, key,
              text(key));
      const std::int64_t token = whole(key, id, std::numeric_limits<std::int32_t>::max());
      REQUIRE(token >= -1, "{}: {} = {}: {} is no token id", where_, key, text(key), token);
      if (token >= 0) ids.push_back(static_cast<std::int32_t>(token));
    }
    return ids;
  }
  Members object(const char* key) const {
    REQUIRE(object_.at(key).is_object(), "{}: {} = {}: must be an object", where_, key, text(key));
    return {fmt::format("{}: {}", where_, key), object_.at(key)};
  }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }
  std::string text(const char* key) const { return object_.at(key).dump().substr(0, 100); }
  const std::string& where() const { return where_; }

 private:
  /// A whole number of at most `largest`.
  std::int64_t whole(const char* key, const nlohmann::json& number, std::int64_t largest) const {
    const bool fits = number.is_number_unsigned()
                          ? number.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest)
                          : number.get<std::int64_t>() <= largest;
    REQUIRE(fits, "{}: {} = {}: {} is above {}, the largest legal value", where_, key, text(key),
            number.dump(), largest);
    return number.get<std::int64_t>();
  }

  std::string where_;
  const nlohmann::json& object_;
};

}  // namespace ztrain::config
