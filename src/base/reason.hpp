#pragma once
// What to tell a user of an exception that is not this program's own.

#include <exception>
#include <string>

namespace ztrain {

/// The message of an Error; of others a sentence without the names of C++ classes and libraries that some of
/// them begin with.
std::string reason_of(const std::exception& error);

/// Behind a reason that memory is lacking: "; this process may have ...", where its address space is limited;
/// else "".
std::string limit_on_memory();

}  // namespace ztrain
