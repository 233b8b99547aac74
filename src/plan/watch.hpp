#pragma once
// Bounds a search in time, and hears how far it is.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace ztrain::plan {

class Watch {
 public:
  using Say = std::function<void(const std::string&)>;

  /// The time runs from now on. say may be empty.
  explicit Watch(double seconds, Say say = {}) : seconds_(seconds), say_(std::move(say)) {}

  bool expired() const { return elapsed() > seconds_; }
  /// A silent one over so much of the time that is left.
  Watch part(double share) const { return Watch(share * std::max(0.0, seconds_ - elapsed())); }
  /// Passes the text on once the search has taken a second.
  void say(const std::string& text) const {
    if (say_ && elapsed() > 1) say_(text);
  }

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Clock::time_point start_ = Clock::now();
  double seconds_;
  Say say_;
};

}  // namespace ztrain::plan
