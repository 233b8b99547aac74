#pragma once
// Errors. Library code throws ztrain::Error; only main prints it and sets the exit code. reason_of() turns
// exceptions that are not this program's own into text for a user.

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ztrain {

/// An error that a user can act on. The message names the key, file or tensor and says what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error for a fault of the program itself, and says where. file is that of __FILE__.
[[noreturn]] inline void defect(std::string_view file, int line, const std::string& what) {
  const std::size_t root = std::min(file.rfind("/src/"), file.rfind("/kernels/"));
  if (root != file.npos) file.remove_prefix(root + 1);
  throw Error(fmt::format("{} (a defect of ztrain, found at {}:{}: please report it)", what, file, line));
}

/// Returns the message of an Error. For other exceptions returns a sentence without the names of C++ classes
/// and libraries with which some messages begin.
std::string reason_of(const std::exception& error);

/// Calls work. Returns why it failed, or "".
template <class Work>
std::string failure_of(const Work& work) {
  try {
    work();
    return "";
  } catch (const std::exception& e) {
    const std::string reason = reason_of(e);
    return reason.empty() ? "unknown failure" : reason;
  }
}

/// Returns "; this process may have ..." if the address space is limited, else "". It follows a message that
/// memory is lacking.
std::string limit_on_memory();

}  // namespace ztrain

/// Checks a condition that no deck, file or machine can break. Throws ztrain::Error with the formatted
/// message and the place in the sources if it does not hold. Active in every build.
#define ASSERT(condition, ...)                                                          \
  do {                                                                                  \
    if (!(condition)) ::ztrain::defect(__FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)

/// Checks a condition that a user can put right. Throws ztrain::Error with the formatted message if it does
/// not hold. Active in every build.
#define REQUIRE(condition, ...)                    \
  do {                                             \
    if (!(condition)) ::ztrain::fail(__VA_ARGS__); \
  } while (false)
