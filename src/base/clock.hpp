#pragma once
// Clocks for durations and for the time of day.

#include <chrono>

namespace ztrain {

/// Returns seconds since a moment that is the same for the whole process.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns seconds since 1970.
inline double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ztrain
