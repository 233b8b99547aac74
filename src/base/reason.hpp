#pragma once
// Turns exceptions that are not this program's own into text for a user.

#include <exception>
#include <string>

namespace ztrain {

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
