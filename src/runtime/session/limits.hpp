#pragma once
// The limits on a process that its shell, its queue or its container sets (ulimit).

#include <string>

namespace ztrain::runtime {

/// Before anything else: lets this process have as many files open, and as deep a stack, as it needs and may
/// have, which is often more than it starts with. Gives a sentence on what is too low even so for MPI to
/// start, of which it would say little or die without a word; "" where nothing is.
std::string raise_limits();

}  // namespace ztrain::runtime
