#pragma once
// Errors. Library code throws ztrain::Error; only main prints it and sets the exit code.

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ztrain {

/// What a user can act on: the message names the key, file or tensor and says what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ztrain

/// Throws ztrain::Error with the formatted message unless the condition holds; active in every build.
#define REQUIRE(condition, ...)                    \
  do {                                             \
    if (!(condition)) ::ztrain::fail(__VA_ARGS__); \
  } while (false)
