#pragma once
// Independent work on all cores that this process may use.

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

#include "base/thread.hpp"

namespace ztrain {

/// work(0), work(1), ..., work(count - 1), each once, in any order and on several threads, `most_threads` at
/// most, of which the caller's is one: on fewer where no further can be made. Throws what the first of those
/// that failed threw, after all that had begun have ended.
template <class Work>
void in_parallel(int count, const Work& work, int most_threads = std::numeric_limits<int>::max()) {
  std::atomic<int> next = 0;
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
  std::atomic<bool> failed = false;
  const auto take = [&] {
    for (int i = next++; i < count && !failed; i = next++) try {
        work(i);
      } catch (...) {
        failures[static_cast<std::size_t>(i)] = std::current_exception();
        failed = true;
      }
  };
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = std::max(1, std::min({cores, count, most_threads}));
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads));
  try {
    for (int t = 1; t < threads; ++t) others.push_back(thread_without_signals(take));
  } catch (const std::exception&) {
    // The threads that there are do all of it.
  }
  take();
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace ztrain
