#pragma once
// Queues of work that wait for each other, run in any order that is legal. What the deferred device and its
// captured graphs are made of.

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>

#include "runtime/device/device.hpp"

namespace ztrain::runtime {

/// An event, as it was recorded once.
struct Mark {
  Queue queue = 0;
  std::int64_t number = 0;  ///< of the task that records it
  Graph capture = -1;       ///< that it was recorded in; -1: none
  bool done = false;
  double seconds = 0;                             ///< on the clock, when it was done
  std::array<std::int64_t, queue_count> known{};  ///< in a capture: works of each queue that come before it
};

struct Task {
  std::int64_t number = 0;     ///< in the order of submission over all queues
  std::function<void()> run;   ///< empty: waits only
  std::shared_ptr<Mark> wait;  ///< must be done first; null: nothing
};

class DeferredWork {
 public:
  void push(Queue queue, Task task) { queues_[static_cast<std::size_t>(queue)].push_back(std::move(task)); }
  bool empty() const;
  /// Runs tasks in a random legal order until the mark is done. Sometimes only what the mark needs, sometimes
  /// more. Throws Error when queues wait for each other.
  void run_until(const Mark& mark, std::mt19937_64& random);
  void run_all(std::mt19937_64& random);
  /// Runs one task, if one can run.
  void run_one(std::mt19937_64& random);

 private:
  using Numbers = std::array<std::int64_t, queue_count>;
  /// The last task of each queue that the mark needs, directly or through waits.
  Numbers needed_for(const Mark& mark) const;
  /// Runs one of the tasks up to `limits`; false when none can run. Queues that come early in `favourites`
  /// run ahead of others.
  bool step(const Numbers& limits, const std::array<Queue, queue_count>& favourites, std::mt19937_64& random);

  std::array<std::deque<Task>, queue_count> queues_;
};

}  // namespace ztrain::runtime
