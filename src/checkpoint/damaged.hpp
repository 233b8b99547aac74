#pragma once
// What tells a checkpoint that is not what was written from one that a run cannot use.

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/error.hpp"

namespace ztrain::checkpoint {

/// A file of a checkpoint is missing, or its bytes are not those that were written. Another checkpoint may
/// do.
class Damaged : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail_damaged(fmt::format_string<Args...> format, Args&&... args) {
  throw Damaged(fmt::format(format, std::forward<Args>(args)...));
}

/// What to do about a checkpoint that cannot be read.
inline constexpr const char* advice =
    "take another checkpoint, one that `ztrain verify` finds sound (for a run its path as "
    "checkpoint.resume), or start anew (checkpoint.resume = \"none\")";

/// The text less the advice, for who follows it already.
inline std::string without_advice(std::string text) {
  const std::string end = std::string("; ") + advice;
  for (std::size_t at = text.find(end); at != text.npos; at = text.find(end)) text.erase(at, end.size());
  return text;
}

}  // namespace ztrain::checkpoint
