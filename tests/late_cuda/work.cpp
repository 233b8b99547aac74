#include "tests/late_cuda/work.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/late_cuda/late_cuda.hpp"

namespace late_cuda {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A stream's place among the others in an order.
std::uint64_t rank_of(int stream, std::uint64_t order) {
  return std::mt19937_64(order + static_cast<std::uint64_t>(stream))();
}

}  // namespace

bool all_done(const Places& places) {
  return std::ranges::all_of(places, [](const Place& place) { return place->done; });
}

bool Operation::ready() const {
  return !done && all_done(after);
}

std::set<const Operation*> up_to(const Places& places) {
  std::set<const Operation*> found;
  Places open = places;
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    if (place->done || !found.insert(place.get()).second) continue;
    open.insert(open.end(), place->after.begin(), place->after.end());
  }
  return found;
}

Place Work::add(Operation operation) {
  // What is done is forgotten, or operations would hold all that ever was.
  std::erase_if(operation.after, [](const Place& place) { return place->done; });
  pending_.push_back(std::make_shared<Operation>(std::move(operation)));
  return pending_.back();
}

bool Work::poll(const Place& operation) {
  const Place held = operation;
  if (held->run && !held->run()) return false;
  held->done = true;
  held->seconds = now();
  held->after.clear();
  held->run = nullptr;
  std::erase(pending_, held);
  return true;
}

const Place& Work::choose(const Places& ready, std::uint64_t order) {
  // One stream far ahead of the others finds what an even mixture does not.
  if (draw() % 4 == 0) return ready[draw() % ready.size()];
  return *std::ranges::min_element(ready, {},
                                   [order](const Place& place) { return rank_of(place->stream, order); });
}

void Work::run_until(const Places& places, Lock& lock) {
  if (all_done(places)) return;
  const Open open;  // opened and closed for each operation it would take much longer
  const std::set<const Operation*> needed = up_to(places);
  const std::uint64_t order = draw();
  bool any = draw() % 2 == 0;
  std::set<const Operation*> waiting;  // for other processes
  while (!all_done(places)) {
    Places ready;
    for (const Place& place : pending_)
      if ((any || needed.contains(place.get())) && !waiting.contains(place.get()) && place->ready())
        ready.push_back(place);
    if (!ready.empty()) {
      const Place& chosen = choose(ready, order);
      if (!poll(chosen)) waiting.insert(chosen.get());
      continue;
    }
    if (waiting.empty()) throw std::logic_error("operations wait for what was never given to a stream");
    // Another process may wait for what this one was not asked for.
    any = true;
    waiting.clear();
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

bool Work::poll_some() {
  const Open open;
  for (std::uint64_t polled = 0, count = 1 + draw() % 8; polled < count; ++polled) {
    Places ready;
    for (const Place& place : pending_)
      if (place->ready()) ready.push_back(place);
    if (ready.empty()) return polled > 0;
    poll(choose(ready, draw()));
  }
  return true;
}

void Work::drop() {
  for (const Place& place : pending_) {
    place->done = true;
    place->after.clear();
    place->run = nullptr;
  }
  pending_.clear();
}

}  // namespace late_cuda
