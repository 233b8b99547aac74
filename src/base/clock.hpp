#pragma once
// The clock that durations are taken with.

#include <chrono>

namespace ztrain {

/// Seconds since a moment that is the same for the whole process.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ztrain
