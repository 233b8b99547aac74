#pragma once
// Reads configurations of other programs: YAML, JSON and TOML become one list of settings.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::translate {

/// A value as its file has it.
struct Value {
  enum class Kind : std::uint8_t { nothing, boolean, number, text, list };

  Kind kind = Kind::nothing;
  std::string word;  ///< as it is written, without quotes; of booleans and numbers as TOML
  std::string toml;  ///< as a deck has it; "" for nothing

  bool is(std::string_view text) const { return word == text; }
  /// Returns whether something is switched on: true, or a number above 0.
  bool on() const;
  /// Returns the number, also of a text such as "2e-4"; 0 for all else.
  double number() const;
  std::vector<std::string> words{};  ///< elements of a list; of all else the word, if there is one
};

struct Setting {
  std::string name;  ///< path with dots, such as "zero_optimization.stage"
  Value value;
  std::string where;  ///< "ds.json:12"
};

/// Returns the value that a scalar of YAML stands for. quoted: it is text whatever it looks like.
Value scalar(const std::string& word, bool quoted = false);

/// Returns the settings of a file in its order. Members of tables within lists have the list's name. Throws
/// Error, with file and line, for what is no mapping or cannot be read.
std::vector<Setting> read_settings(const std::string& path);

}  // namespace ztrain::translate
