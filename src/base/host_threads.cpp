#include "base/host_threads.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace ztrain {

HostThreads::HostThreads(int count) {
  try {
    for (int t = 1; t < count; ++t) others_.push_back(thread_without_signals([this] { wait_for_work(); }));
  } catch (const std::system_error&) {
    // The threads made so far do all of the work.
  }
}

HostThreads::~HostThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& other : others_) other.join();
}

void HostThreads::share(std::int64_t parts, const std::function<void(std::int64_t)>& work) {
  if (others_.empty() || parts < 2) {
    for (std::int64_t i = 0; i < parts; ++i) work(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    parts_ = parts;
    failure_ = nullptr;
    next_.store(0, std::memory_order_relaxed);
    at_work_ = static_cast<int>(others_.size());
    ++number_;
  }
  begun_.notify_all();
  take();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return at_work_ == 0; });
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

void HostThreads::take() {
  try {
    for (std::int64_t i = next_++; i < parts_; i = next_++) (*work_)(i);
  } catch (...) {
    next_ = parts_;  // no thread begins another part
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void HostThreads::wait_for_work() {
  for (std::int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [&] { return stopping_ || number_ != seen; });
      if (stopping_) return;
      seen = number_;
    }
    take();
    const std::lock_guard lock(mutex_);
    if (--at_work_ == 0) ended_.notify_one();
  }
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return all_cores();
  return std::max(1, CPU_COUNT(&cores));
}

int all_cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string node_name() {
  const char* name = std::getenv("SLURMD_NODENAME");
  if (name != nullptr && *name != '\0') return name;
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "unknown host";
}

}  // namespace ztrain
