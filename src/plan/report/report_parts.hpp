#pragma once
// Internal to the report of a plan. Declares the words that its parts share, and its sections on what fits.

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "base/text.hpp"
#include "plan/fit.hpp"
#include "plan/search.hpp"

namespace ztrain::plan {

inline std::string size(Amount bytes) {
  return format_decimal_bytes(bytes);
}

inline std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

/// "14,512,139": of what is not negative.
inline std::string grouped(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (auto i = std::ssize(digits) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

inline std::string heading(const std::string& text) {
  return "\n" + text + "\n";
}

/// Returns a line of the report. A line wider than a page goes on in the next one.
std::string line(const char* what, const std::string& value);

/// Returns how long the job takes, from its first step to its last save, and its energy if that is known.
/// Returns "" if the machine is not known.
std::string run_line(const Cost& cost);

/// Returns when to save, and what that assumes. Returns "" on CPU ranks.
std::string interval_lines(const Cost& cost);

/// Returns the text of what makes a job fit that does not.
std::string fixes_section(const Fixes& fixes);

/// Returns the text of what was found for so many ranks.
std::string search_section(const Search& search, int ranks);

}  // namespace ztrain::plan
