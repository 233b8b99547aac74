#pragma once
// Queues of work that wait for each other, run in any legal order. The deferred device and its captured
// graphs are made of them.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {

/// One recording of an event.
struct Mark {
  Queue queue = 0;
  std::int64_t number = 0;  ///< number of the task that records it
  Graph capture = -1;       ///< capture that it was recorded in; -1: none
  bool done = false;
  double seconds = 0;  ///< time at which it was done
  /// In a capture: number of tasks of each queue that come before it.
  std::array<std::int64_t, queue_count> known{};
};

struct Task {
  std::int64_t number = 0;     ///< place in the order of submission over all queues
  std::function<void()> run;   ///< empty: the task only waits
  std::shared_ptr<Mark> wait;  ///< mark that must be done first; null: none
};

class DeferredWork {
 public:
  void push(Queue queue, Task task) { queues_[at(queue)].push_back(std::move(task)); }
  bool empty() const {
    return std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
  }
  /// Runs tasks in a random legal order until the mark is done; sometimes only those that the mark needs,
  /// sometimes more. Throws Error if queues wait for each other.
  void run_until(const Mark& mark, std::mt19937_64& random) {
    const Order favourites = any_order(random);
    Numbers limits = needed_for(mark);
    if (random() % 2 == 0) limits = no_limits();
    while (!mark.done)
      REQUIRE(step(limits, favourites, random), "the queues of the device wait for each other for ever");
  }
  void run_all(std::mt19937_64& random) {
    const Order favourites = any_order(random);
    while (!empty())
      REQUIRE(step(no_limits(), favourites, random), "the queues of the device wait for each other for ever");
  }
  /// Runs one task, if one can run.
  void run_one(std::mt19937_64& random) { step(no_limits(), any_order(random), random); }

 private:
  using Numbers = std::array<std::int64_t, queue_count>;
  using Order = std::array<Queue, queue_count>;

  static Order any_order(std::mt19937_64& random) {
    Order order;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }
  static Numbers no_limits() {
    Numbers limits;
    limits.fill(std::numeric_limits<std::int64_t>::max());
    return limits;
  }
  /// Returns the last task of each queue that the mark needs, directly or through waits.
  Numbers needed_for(const Mark& mark) const {
    Numbers needed;
    needed.fill(-1);
    needed[at(mark.queue)] = mark.number;
    for (bool more = true; more;) {
      more = false;
      for (std::size_t q = 0; q < queue_count; ++q)
        for (const Task& task : queues_[q]) {
          if (task.number > needed[q]) break;
          if (!task.wait || task.wait->done || task.wait->number <= needed[at(task.wait->queue)]) continue;
          needed[at(task.wait->queue)] = task.wait->number;
          more = true;
        }
    }
    return needed;
  }
  /// Runs one of the tasks up to `limits`. Queues that come early in `favourites` run ahead of others.
  /// Returns false if none can run.
  bool step(const Numbers& limits, const Order& favourites, std::mt19937_64& random) {
    std::array<Queue, queue_count> ready;
    std::size_t count = 0;
    for (const Queue q : favourites) {
      const auto& queue = queues_[at(q)];
      if (queue.empty() || queue.front().number > limits[at(q)]) continue;
      if (queue.front().wait && !queue.front().wait->done) continue;
      ready[count++] = q;
    }
    if (count == 0) return false;
    // One queue far ahead of the others finds faults that an even mixture does not.
    auto& queue = queues_[at(ready[random() % 4 == 0 ? random() % count : 0])];
    const Task task = std::move(queue.front());
    queue.pop_front();
    if (task.run) task.run();
    return true;
  }

  std::array<std::deque<Task>, queue_count> queues_;
};

}  // namespace ztrain::runtime
