#pragma once
// Converts values of other programs that a deck writes in another way. The key of each name is in config's
// table of other programs' names.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "translate/read.hpp"

namespace ztrain::translate {

enum class Fate : std::uint8_t {
  taken,
  always,   ///< it is so here, or not needed
  none,     ///< there is no counterpart
  open,     ///< another file, or the user, is to say it
  unset,    ///< the file gives no value
  unknown,  ///< no program's name
};

/// Result of translating one setting.
struct Taken {
  std::vector<std::pair<std::string, std::string>>
      settings{};      ///< keys of the deck, or parts; values as TOML
  std::string note{};  ///< a clause
  Fate fate = Fate::taken;
};

/// Parts of keys that several settings make together.
namespace part {
inline constexpr const char* accumulation = "(accumulation)";
inline constexpr const char* beta1 = "(beta1)";
inline constexpr const char* beta2 = "(beta2)";
inline constexpr const char* data = "(data)";
}  // namespace part

/// The settings of all files together.
struct Context {
  std::span<const Setting> settings;

  /// Returns the last value of this name, or of one that ends so behind a dot; null if there is none.
  const Value* find(std::string_view name) const;
  bool on(std::string_view name) const;
  double number(std::string_view name) const;
};

struct Conversion {
  std::string_view names;  ///< as in config::OtherName
  Taken (*run)(const Setting& setting, const Context& all);
  std::string_view doc{};  ///< remark for docs/coming-from.md
};

std::span<const Conversion> placement_conversions();  ///< of parallelism, memory, precision
std::span<const Conversion> model_conversions();      ///< of model, data, adapters
std::span<const Conversion> training_conversions();   ///< of optimizer, schedule, length, batch, saves

/// Finds the conversion of a path by its longest ending; null if values are written as in a deck.
const Conversion* find_conversion(std::string_view path);

/// Returns the remark of docs/coming-from.md on a path, or what it says otherwise.
std::string_view remark_on(std::string_view path, std::string_view otherwise);

/// Returns the text in lower case, of letters, digits and dots alone.
std::string plain(std::string_view text);

inline Taken leave(std::string note, Fate fate = Fate::none) {
  return {.settings = {}, .note = std::move(note), .fate = fate};
}
inline Taken put(std::string key, std::string toml, std::string note = {}) {
  return {.settings = {{std::move(key), std::move(toml)}}, .note = std::move(note)};
}

}  // namespace ztrain::translate
