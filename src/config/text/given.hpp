#pragma once
// Internal to config. Holds the keys of a deck as they were given, before their values are interpreted.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include <toml++/toml.h>

#include "config/validate/faults.hpp"

namespace ztrain::config {

/// A key as it was given.
struct Given {
  const toml::node* value;
  std::string source;     ///< such as "input.toml:12", or command_line
  std::int64_t line = 0;  ///< 0: none
};
using GivenKeys = std::map<std::string, Given>;

/// Collects the keys of a parsed deck; unknown ones are faults. The table keeps the values.
void collect_keys(const toml::table& file, const std::string& path, GivenKeys& given, Faults& faults);

/// Adds the keys of the command line, which win. `tables` owns the parsed values, at fixed addresses.
void collect_overrides(const std::vector<std::string>& overrides, std::deque<toml::table>& tables,
                       GivenKeys& given, Faults& faults);

}  // namespace ztrain::config
