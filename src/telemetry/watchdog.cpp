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
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto deadline =
        last_beat_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout_);
    if (std::chrono::steady_clock::now() < deadline) {
      wake_.wait_until(lock, deadline);
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
