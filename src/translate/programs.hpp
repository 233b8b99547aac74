#pragma once
// The programs whose configurations are read: the names in their files, and what counts there if a name is
// not given.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "translate/read.hpp"

namespace ztrain::translate {

/// Value that a program takes for a name that its file lacks, where that differs from the deck's default.
struct Default {
  std::string_view name;
  std::string_view value;   ///< as YAML has it
  std::string_view with{};  ///< only if this name is given; "": always
};

struct Program {
  std::string_view name;   ///< for --from
  std::string_view title;  ///< for people
  std::string_view files;  ///< which files, for docs/coming-from.md
  std::string_view keys;  ///< names separated by spaces, in the order of the docs; * at an end stands for all
  std::span<const Default> defaults;
};

/// Returns all programs. Where files of several are given, the defaults of an earlier one count.
std::span<const Program> programs();

/// Returns the program of this name. Throws Error that lists them.
const Program& find_program(std::string_view name);

/// Returns the program that has most of the names. Throws Error, with the file, if none has half of them.
const Program& recognise(const std::vector<Setting>& settings, const std::string& file);

/// Returns the names of a program.
std::vector<std::string> keys_of(const Program& program);

}  // namespace ztrain::translate
