#pragma once
// Bounds a search, and hears how far it is. How much is tried is counted, so that a search comes to the same
// end however busy the machine is; the clock alone ends what takes unexpectedly long.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace ztrain::plan {

/// What has ended a search before all was tried.
enum class Ended : std::uint8_t { not_early, by_count, by_clock };

constexpr std::string_view name_of(Ended ended) {
  return ended == Ended::by_count ? "count" : ended == Ended::by_clock ? "clock" : "";
}

/// Behind how many were tried.
constexpr std::string_view early_end_of(Ended ended) {
  return ended == Ended::by_count   ? "; there are more"
         : ended == Ended::by_clock ? "; the time for it ran out: a machine with less to do may find more"
                                    : "";
}

class Watch {
 public:
  using Say = std::function<void(const std::string&)>;

  /// candidates: Programs of a rank that may be compiled. The time runs from now on. say may be empty.
  Watch(std::int64_t candidates, double seconds, Say say = {})
      : left_(candidates), seconds_(seconds), say_(std::move(say)) {}

  /// How many of so many candidates may be tried now; they count. By one thread.
  std::int64_t take(std::int64_t wanted) const {
    const std::int64_t given = late() ? 0 : std::min(wanted, left_);
    left_ -= given;
    if (given < wanted) leave_some();
    return given;
  }
  /// Whether the time is up: then what was taken is left, too. By any thread.
  bool late() const {
    const bool late = elapsed() > seconds_;
    if (late) ended_ = Ended::by_clock;
    return late;
  }
  std::int64_t left() const { return left_; }
  /// Notes that something is left untried.
  void leave_some() const {
    if (ended_ == Ended::not_early) ended_ = late() ? Ended::by_clock : Ended::by_count;
  }
  Ended ended() const { return ended_; }
  /// A silent one for as much time as is left, over as many candidates, which do not count here.
  Watch part(std::int64_t candidates) const { return Watch(candidates, std::max(0.0, seconds_ - elapsed())); }
  /// Passes the text on once the search has taken a second.
  void say(const std::string& text) const {
    if (say_ && elapsed() > 1) say_(text);
  }

 private:
  using Clock = std::chrono::steady_clock;
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Clock::time_point start_ = Clock::now();
  mutable std::int64_t left_;
  mutable std::atomic<Ended> ended_ = Ended::not_early;
  double seconds_;
  Say say_;
};

/// For a deck whose step compiles to so many ops: a search over all of its candidates takes about half a
/// minute on a core, whatever the deck.
constexpr std::int64_t candidates_for(std::size_t compiled_ops) {
  constexpr std::int64_t ops_of_a_search = 1'500'000, least = 100, most = 4000;
  return std::clamp(ops_of_a_search / std::max<std::int64_t>(1, static_cast<std::int64_t>(compiled_ops)),
                    least, most);
}

}  // namespace ztrain::plan
