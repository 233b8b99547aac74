#include "runtime/device/deferred_work.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"

namespace ztrain::runtime {
namespace {

using Order = std::array<Queue, queue_count>;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

Order any_order(std::mt19937_64& random) {
  Order order;
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

bool DeferredWork::empty() const {
  return std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
}

DeferredWork::Numbers DeferredWork::needed_for(const Mark& mark) const {
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

bool DeferredWork::step(const Numbers& limits, const Order& favourites, std::mt19937_64& random) {
  std::array<Queue, queue_count> ready;
  std::size_t count = 0;
  for (const Queue q : favourites) {
    const auto& queue = queues_[at(q)];
    if (queue.empty() || queue.front().number > limits[at(q)]) continue;
    if (queue.front().wait && !queue.front().wait->done) continue;
    ready[count++] = q;
  }
  if (count == 0) return false;
  // One queue far ahead of the others finds what an even mixture does not.
  auto& queue = queues_[at(ready[random() % 4 == 0 ? random() % count : 0])];
  const Task task = std::move(queue.front());
  queue.pop_front();
  if (task.run) task.run();
  return true;
}

void DeferredWork::run_until(const Mark& mark, std::mt19937_64& random) {
  const Order favourites = any_order(random);
  Numbers limits = needed_for(mark);
  if (random() % 2 == 0) limits.fill(no_limit);
  while (!mark.done)
    REQUIRE(step(limits, favourites, random), "the queues of the device wait for each other for ever");
}

void DeferredWork::run_all(std::mt19937_64& random) {
  const Order favourites = any_order(random);
  Numbers limits;
  limits.fill(no_limit);
  while (!empty())
    REQUIRE(step(limits, favourites, random), "the queues of the device wait for each other for ever");
}

void DeferredWork::run_one(std::mt19937_64& random) {
  Numbers limits;
  limits.fill(no_limit);
  step(limits, any_order(random), random);
}

}  // namespace ztrain::runtime
