#pragma once
// What to tell a user of an exception that is not this program's own.

#include <exception>
#include <string>

namespace ztrain {

/// The message of an Error; of others a sentence without the names of C++ classes and libraries that some of
/// them begin with.
std::string reason_of(const std::exception& error);

/// Why work, which is called, has failed; "" where it has not.
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

/// Behind a reason that memory is lacking: "; this process may have ...", where its address space is limited;
/// else "".
std::string limit_on_memory();

}  // namespace ztrain
