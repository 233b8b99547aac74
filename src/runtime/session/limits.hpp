#pragma once
// Raises the limits that a shell, a queue or a container sets on this process (ulimit).

#include <string>

namespace ztrain::runtime {

/// Must run before anything else. Lets this process have as many open files and as deep a stack as it needs
/// and may have, often more than it starts with. Returns a sentence on what is still too low for MPI to
/// start, which would die with little or no message; "" if nothing is.
std::string raise_limits();

}  // namespace ztrain::runtime
