#pragma once
// Runs independent work on all cores that this process may use.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <thread>
#include <vector>

#include "base/host_threads.hpp"

namespace ztrain {

/// Calls work(i, lane) for i = 0, 1, ..., count - 1, each once and begun in this order, on that many threads;
/// the caller's is lane 0. There are fewer if no further thread can be made. One thread at a time calls a
/// lane. Throws the exception of the first call that failed, after all begun calls have ended.
template <class Work>
void in_lanes(std::int64_t count, int lanes, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  std::atomic<bool> failed = false;
  const int threads = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(lanes, count)));
  struct Failure {
    std::int64_t at = 0;
    std::exception_ptr what;
  };
  std::vector<Failure> failures(static_cast<std::size_t>(threads));
  const auto take = [&](int lane) {
    for (std::int64_t i = next++; i < count && !failed; i = next++) try {
        work(i, lane);
      } catch (...) {
        failures[static_cast<std::size_t>(lane)] = {i, std::current_exception()};
        failed = true;
      }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(threads));
  try {
    for (int lane = 1; lane < threads; ++lane)
      others.push_back(thread_without_signals([&take, lane] { take(lane); }));
  } catch (const std::exception&) {
    // The threads made so far do all of the work.
  }
  take(0);
  for (std::thread& other : others) other.join();
  const Failure* first = nullptr;
  for (const Failure& failure : failures)
    if (failure.what && (first == nullptr || failure.at < first->at)) first = &failure;
  if (first != nullptr) std::rethrow_exception(first->what);
}

/// Calls work(0), work(1), ..., work(count - 1), as in_lanes does, on all usable_cores(), at most on
/// `most_threads`.
template <class Work>
void in_parallel(int count, const Work& work, int most_threads = std::numeric_limits<int>::max()) {
  in_lanes(count, std::min(usable_cores(), most_threads),
           [&](std::int64_t i, int) { work(static_cast<int>(i)); });
}

}  // namespace ztrain
