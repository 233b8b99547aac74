#pragma once
// Runs cases in processes that may die or hang: what happens to one is told of the case that was under way.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace ztrain::damaged_files {

struct Plan {
  std::uint64_t first = 1, last = 300;  ///< seeds
  std::string subject;                  ///< of which cases are; "": of each, by weight
  std::filesystem::path folder;         ///< empty, for sound files and cases
  bool aloud = false;                   ///< prints what each case did
};

/// Findings that are likely one.
struct Cause {
  std::uint64_t times = 0, seed = 0;  ///< seed: the first
  std::string text;                   ///< of that one: what was changed, what was run, what was printed
};

struct Report {
  std::uint64_t accepted = 0, refused = 0;  ///< commands
  double slowest = 0;                       ///< seconds of CPU time of a case
  std::uint64_t slowest_seed = 0;
  std::map<std::string, Cause> causes;
};

/// Throws Error when sound files are not accepted.
Report run_cases(const Plan& plan);

}  // namespace ztrain::damaged_files
