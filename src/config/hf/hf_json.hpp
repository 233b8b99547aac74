#pragma once
// Internal to config. Reads the JSON files of models and checkpoints, with messages that name file and key.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ztrain::config {

inline constexpr std::int64_t largest_config = 1 << 20;  ///< bytes; real ones are about a thousand

/// Returns the object that the file holds. Throws Error if the file cannot be read, has more bytes than
/// `largest`, exceeds the limits of parse_json, or is not a JSON object.
nlohmann::json read_json(const std::string& path, std::int64_t largest = largest_config);

/// Does the same for the config.json of model.from, which the message names if the file is missing.
nlohmann::json read_hf_config(const std::string& path);

/// Members of one JSON object, with messages that name file and key. A null counts as absent, except for
/// contains().
class Members {
 public:
  Members(std::string where, const nlohmann::json& object) : where_(std::move(where)), object_(object) {}

  bool contains(const char* key) const;
  bool has(const char* key) const;

  std::int64_t integer(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t standard) const;
  double number(const char* key, double standard) const;
  double number(const char* key) const;
  bool boolean(const char* key, bool standard) const;
  std::string string(const char* key, const char* standard) const;
  /// Returns one token id or a list of them. Leaves out -1, which older files have for "none".
  std::vector<std::int32_t> tokens(const char* key) const;
  Members object(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  std::string text(const char* key) const;  ///< returns at most 100 characters of it
  const std::string& where() const { return where_; }

 private:
  /// Returns a whole number of at most `largest`.
  std::int64_t whole(const char* key, const nlohmann::json& number, std::int64_t largest) const;

  std::string where_;
  const nlohmann::json& object_;
};

}  // namespace ztrain::config
