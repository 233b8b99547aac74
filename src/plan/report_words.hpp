#pragma once
// Words that the parts of a plan's report share.

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "base/text.hpp"

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

}  // namespace ztrain::plan
