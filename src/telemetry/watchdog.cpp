#include "telemetry/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ztrain::telemetry {

Watchdog::Watchdog(double timeout, int rank, std::string host, OnTimeout on_timeout)
    : timeout_(timeout),
      rank_(rank),
      host_(std::move(host)),
      on_timeout_(std::move(on_timeout)),
      last_beat_(std::chrono::steady_clock::now()) {
  if (timeout > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::set(std::string_view op) {
  const std::size_t length = std::min(op.size(), sizeof op_ - 1);
  std::memcpy(op_, op.data(), length);
  op_[length] = '\0';
}

void Watchdog::beat(std::string_view op) {
  const std::lock_guard lock(mutex_);
  last_beat_ = std::chrono::steady_clock::now();
  set(op);
}

void Watchdog::enter(std::string_view op) {
  const std::lock_guard lock(mutex_);
  set(op);
}

void Watchdog::watch() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds look{250}, stood_still{1000};
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto deadline = last_beat_ + std::chrono::duration_cast<Clock::duration>(timeout_);
    if (const auto before = Clock::now(); before < deadline) {
      wake_.wait_until(lock, std::min(deadline, before + look));
      // The clock went on while the process was stopped (Ctrl-Z, scontrol suspend): that is no hang.
      const auto slept = Clock::now() - before;
      if (slept > stood_still) last_beat_ = std::min(last_beat_ + slept, Clock::now());
      continue;
    }
    const std::string message = fmt::format("rank {} ({}): no step finished for {:g} s; waiting in: {}",
                                            rank_, host_, timeout_.count(), op_);
    lock.unlock();
    on_timeout_(message);
    return;
  }
}

void Watchdog::print_and_exit(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "ztrain: %s\n", message.c_str());
  std::fflush(stderr);
  // The launcher forwards stderr by another path than it learns of our end.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::_Exit(1);
}

}  // namespace ztrain::telemetry
