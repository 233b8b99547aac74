#pragma once
// The clock that durations are taken with, and that of the day.

#include <chrono>

namespace ztrain {

/// Seconds since a moment that is the same for the whole process.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since 1970.
inline double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ztrain
